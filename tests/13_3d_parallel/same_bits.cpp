// 13_3d_parallel: ranks on a mesh have the bits of 06 on one rank, whatever its shape; and what a
// row of equal_runs.txt cannot say of whole runs.
#include <set>
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
  const std::string flags = "--batch 8 --clip 1 ";
  const Trace one = trace("06_checkpointing", flags, kShort);
  for (const Row& row : pairwise(factors, is_legal)) {
    const std::string mesh = flags_of(factors, row);
    EXPECT_TRUE(same_trace(one, trace("13_3d_parallel", flags + mesh, kShort))) << mesh;
  }
}

using MeshRuns = Programs;

// All ranks are shares of the batch if nothing else is said.
TEST_F(MeshRuns, WhatIsLeftIsDp) {
  const auto layout = report("13_3d_parallel", "--batch 8 --ranks 8 --pp 2")["layout"];
  EXPECT_EQ(layout["tp"], 1);
  EXPECT_EQ(layout["dp"], 4);
  EXPECT_EQ(layout["pp"], 2);
  EXPECT_EQ(layout["ranks"], 8);
}

// A row of the timeline is found by its name.
TEST_F(MeshRuns, TimelineRowsAreNamedAfterTheirRanks) {
  train("13_3d_parallel",
        "--layers 4 --batch 8 --micro-batch 2 --steps 1 --tp 2 --dp 2 --pp 2 --timeline rows.json");
  std::multiset<std::string> names, wanted;
  const auto file = nlohmann::json::parse(read("rows.json"));
  for (const auto& event : file["traceEvents"])
    if (event["name"] == "thread_name") names.insert(event["args"]["name"].get<std::string>());
  for (int rank = 0; rank < 8; ++rank)
    for (const char* whose : {"", ", beside"}) wanted.insert(fmt::format("rank {}{}", rank, whose));
  EXPECT_EQ(names, wanted);
}

// Stages make different numbers of sums: the last one of a step for some is not for others.
TEST_F(MeshRuns, AFaultStopsNoRun) {
  for (const int nth : {33, 35, 37, 39, 41})
    train("13_3d_parallel",
          fmt::format("--tp 2 --dp 2 --pp 2 --batch 8 --micro-batch 2 --steps 1 --fault "
                      "skip:all_reduce:{}",
                      nth));
}

}  // namespace
}  // namespace ladder::test
