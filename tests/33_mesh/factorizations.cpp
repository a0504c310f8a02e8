// 33_mesh by night: every mesh of 16 ranks, and some of 32, has the bits of 06 on one rank.
#include <string>
#include <vector>

#include "tests/33_mesh/long_text.h"
#include "tests/common/memory.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

constexpr Range kShort = {0, 2};

/// 8 heads, and 512 tokens: as many as 8 context ranks share.
const std::string kGpt =
    "--model gpt2-124m --vocab 256 --layers 16 --channels 128 --heads 8 --seq-len 512 ";
const std::string kLlama = "--model llama-nano --layers 16 --channels 64 --seq-len 512 ";

class Factorizations : public SameTrace, public ::testing::WithParamInterface<std::string> {
 protected:
  const std::string flags = GetParam() + "--batch 16 --clip 0.5 ";
  const Trace one = (lengthen(), trace("06_checkpointing", flags, kShort));

  void lengthen() const { write("text.txt", repeated(read("text.txt"), 12'000)); }

  void expect_same(const std::string& mesh) const {
    const std::string all =
        flags + mesh + "--micro-batch 1 --threads 1 --report report.json --pipeline zb-h1";
    EXPECT_TRUE(same_trace(one, trace("33_mesh", all, kShort))) << mesh;
    EXPECT_TRUE(as_predicted(nlohmann::json::parse(read("report.json")))) << mesh;
  }
};

std::string mesh_of(int tp, int cp, int replicas, int pp, int ranks) {
  return fmt::format("--tp {} --cp {} --replicas {} --pp {} --ranks {} {}", tp, cp, replicas, pp,
                     ranks, tp > 1 ? "--sequence-parallel " : "");
}

TEST_P(Factorizations, OfSixteenRanks) {
  const int most = GetParam() == kGpt ? 8 : 4;  // LLaMA's heads are in 4 groups
  int meshes = 0;
  for (int tp = 1; tp <= most; tp *= 2)
    for (int cp = 1; cp <= 8; cp *= 2)
      for (int replicas = 1; tp * cp * replicas <= 16; replicas *= 2)
        for (int pp = 1; tp * cp * replicas * pp <= 16; pp *= 2, ++meshes)
          expect_same(mesh_of(tp, cp, replicas, pp, 16));
  fmt::print("{} meshes of 16 ranks\n", meshes);
}

TEST_P(Factorizations, SomeOfThirtyTwo) {
  expect_same(mesh_of(2, 2, 2, 2, 32));
  expect_same(mesh_of(4, 2, 2, 2, 32));
  expect_same(mesh_of(2, 8, 1, 2, 32));
  expect_same(mesh_of(4, 4, 2, 1, 32));
  expect_same(mesh_of(1, 2, 1, 16, 32));
}

INSTANTIATE_TEST_SUITE_P(Of, Factorizations, ::testing::Values(kGpt, kLlama),
                         [](const auto& test) { return test.index == 0 ? "Gpt" : "Llama"; });

}  // namespace
}  // namespace ladder::test
