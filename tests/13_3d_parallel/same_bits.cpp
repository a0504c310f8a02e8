// 13_3d_parallel: ranks on a mesh have the bits of 06 on one rank, whatever its shape.
#include <tuple>

#include <fmt/format.h>

#include "tests/common/pairwise.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

constexpr Range kShort = {0, 3};

std::vector<Exact> tables() {
  // `ref` is the specification, not the fast one: fewer layers, channels and tokens.
  return {
      {.name = "cpu", .flags = "--backend cpu --model nano "},
      {.name = "ref", .flags = "--backend ref --layers 4 --channels 64 --heads 4 --seq-len 8 "}};
}

class MeshBits : public SameTraceExact {
 protected:
  static bool is_ref() { return GetParam().name == "ref"; }
  static int layers() { return is_ref() ? 4 : 8; }

  void expect_same(const std::string& flags, const std::vector<std::string>& meshes) const {
    const Trace one = trace("06_checkpointing", flags, kShort);
    for (const std::string& mesh : meshes)
      EXPECT_TRUE(same_trace(one, trace("13_3d_parallel", flags + mesh, kShort))) << mesh;
  }
};
INSTANTIATE_TEST_SUITE_P(Mesh, MeshBits, ::testing::ValuesIn(tables()), exact_name);

// The axes, the schedule, what is computed again, sequence parallelism and the micro-batch, each
// pair of their values; up to 16 ranks, with `ref` 8.
TEST_P(MeshBits, EachPairOfValues) {
  const std::vector<Factor> factors = {
      {"--tp 1", "--tp 2", "--tp 4"},
      {"--dp 1", "--dp 2", "--dp 4"},
      {"--pp 1", "--pp 2", "--pp 4"},
      {"--pipeline gpipe", "--pipeline 1f1b", "--pipeline interleaved", "--pipeline zb-h1"},
      {"--micro-batch 1", "--micro-batch 2", ""},
      {"--recompute none", "--recompute full", "--recompute sqrt", "--recompute selective",
       "--recompute every:1"},
      {"", "--sequence-parallel"}};
  const auto is_legal = [&](const Row& row) {
    const auto [tp, dp, pp] = std::tuple{1 << row[0], 1 << row[1], 1 << row[2]};
    const bool interleaved = row[3] == 2, sequence_parallel = row[6] == 1;
    const int share = 8 / dp;
    const int micro_batches = row[4] == 2 ? 1 : share >> row[4];
    return tp * dp * pp <= (is_ref() ? 8 : 16) && micro_batches > 0 &&
           !(sequence_parallel && tp == 1) &&
           !(interleaved && (pp == 1 || micro_batches % pp != 0 || layers() < 2 * pp));
  };
  std::vector<std::string> meshes;
  for (const Row& row : pairwise(factors, is_legal)) meshes.push_back(flags_of(factors, row));
  expect_same("--batch 8 --clip 1 ", meshes);
}

/// Of four layers.
class MeshBitsMore : public SameTrace {
 protected:
  Trace one(const std::string& flags, Range range = kShort) const {
    return trace("06_checkpointing", "--layers 4 " + flags, range);
  }
  Trace mesh(const std::string& flags, Range range = kShort) const {
    return trace("13_3d_parallel", "--layers 4 " + flags, range);
  }
};

// Every shape of 1, 2, 4 and 8 ranks with this model. nano has 8 heads and, here, 4 layers.
TEST_F(MeshBitsMore, EveryShapeOfUpToEightRanks) {
  const std::string flags = "--batch 8 --micro-batch 1 ";
  const Trace alone = one(flags);
  for (const int tp : {1, 2, 4, 8})
    for (const int dp : {1, 2, 4, 8})
      for (const int pp : {1, 2, 4}) {
        if (tp * dp * pp > 8) continue;
        const std::string axes = fmt::format("--tp {} --dp {} --pp {}", tp, dp, pp);
        EXPECT_TRUE(same_trace(alone, mesh(flags + axes))) << axes;
      }
}

// All ranks are shares of the batch if nothing else is said.
TEST_F(MeshBitsMore, WhatIsLeftIsDp) {
  const std::string flags = "--batch 8 ";
  const auto layout = report("13_3d_parallel", flags + "--ranks 8 --pp 2")["layout"];
  EXPECT_EQ(layout["tp"], 1);
  EXPECT_EQ(layout["dp"], 4);
  EXPECT_EQ(layout["pp"], 2);
  EXPECT_EQ(layout["ranks"], 8);
}

}  // namespace
}  // namespace ladder::test
