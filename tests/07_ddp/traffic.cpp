// 07 to 10, and 18: counted bytes on the wire as the formulas say; and those of 07, written out.
#include "tests/common/memory.h"
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class RanksTraffic : public MemoryRuns, public ::testing::WithParamInterface<DataParallel> {
 protected:
  nlohmann::json run(const std::string& flags) const {
    return report(GetParam().chapter, "--layers 2 --batch 8 " + flags);
  }
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksTraffic, ::testing::ValuesIn(data_parallel()),
                         row_name);

/// Bytes that rank r sent, in operations of all kinds.
int64_t sent(const nlohmann::json& report, size_t r) {
  int64_t sum = 0;
  for (const auto& [operation, count] : report.at("comm").at(r).items())
    if (operation != "rank") sum += count.at("wire_bytes").get<int64_t>();
  return sum;
}

TEST_P(RanksTraffic, IsAsPredicted) {
  for (const std::string flags :
       {"--ranks 1", "--ranks 2", "--ranks 4 --micro-batch 1", "--ranks 8 --precision bf16",
        "--ranks 2 --micro-batch 1 --precision bf16", "--ranks 4 --reduction ring",
        "--ranks 2 --precision fp16 --loss-scale 1024 --recompute full",
        "--ranks 2 --channels 24 --heads 3"}) {
    const nlohmann::json traffic = run(flags)["extra"]["traffic"];
    EXPECT_TRUE(traffic["predicted"].is_number()) << flags;
    EXPECT_EQ(traffic["predicted"], traffic["measured"]) << flags;
    EXPECT_EQ(traffic["measured"] > 0, flags != "--ranks 1") << flags;
  }
}

// What is predicted is all that grows with the model: the rest of a step is numbers.
TEST_P(RanksTraffic, OfTwoMoreStepsIsAllThatRanksSend) {
  constexpr int64_t kNumbers = 2048;
  for (const std::string flags : {"--ranks 2", "--ranks 4 --micro-batch 1 --precision bf16"}) {
    const auto three = run(flags + " --steps 3"), one = run(flags + " --steps 1");
    const int64_t step = three["extra"]["traffic"]["measured"];
    for (size_t r = 0; r < three["comm"].size(); ++r) {
      const int64_t two = sent(three, r) - sent(one, r);
      EXPECT_GE(two, 2 * step) << flags << " rank " << r;
      EXPECT_LE(two, 2 * (step + kNumbers)) << flags << " rank " << r;
    }
  }
}

// A step that overflows ends before updated weights are gathered.
TEST_P(RanksTraffic, OfASkippedStep) {
  must_end_with(3);
  const auto got = run("--ranks 2 --steps 1 --precision fp16 --loss-scale 8388608");
  ASSERT_EQ(got["extra"]["loss_scale"]["skipped"], 1);
  const auto& traffic = got["extra"]["traffic"];
  EXPECT_GT(traffic["measured"], 0);
  EXPECT_EQ(traffic["predicted"],
            GetParam().gathers_after_update ? nlohmann::json() : traffic["measured"]);
}

TEST_P(RanksTraffic, OfNoStepIsNothing) {
  run("--ranks 2 --steps 1 --save saved");
  const auto traffic = run("--ranks 2 --steps 1 --load saved")["extra"]["traffic"];
  EXPECT_EQ(traffic["predicted"], 0);
  EXPECT_EQ(traffic["measured"], 0);
}

// Where ranks send unlike amounts there is no number for all of them.
TEST_P(RanksTraffic, OfATreeIsNotPredicted) {
  EXPECT_TRUE(run("--ranks 2 --reduction tree")["extra"]["traffic"]["predicted"].is_null());
}

// Sections of 08 to 10 are padded until their chunks are equal; messages of 07 are not, so that of
// three ranks some send more than others.
TEST_P(RanksTraffic, OfUnequalChunksIsNotPredicted) {
  const nlohmann::json traffic = report(
      GetParam().chapter, "--layers 2 --batch 12 --ranks 3 --reduction ring")["extra"]["traffic"];
  if (GetParam().sharded)
    EXPECT_EQ(traffic["predicted"], traffic["measured"]);
  else
    EXPECT_TRUE(traffic["predicted"].is_null()) << traffic;
}

class DdpTraffic : public MemoryRuns {};

TEST_F(DdpTraffic, IsTwoP) {
  const int64_t L = 3, P = parameters(L);
  for (const int64_t N : {2, 4, 8})
    for (const std::string flags :
         {"", "--precision bf16", "--micro-batch 1", "--ddp naive", "--bucket-mb 0"})
      EXPECT_EQ(report("07_ddp", fmt::format("--layers {} --batch 16 --steps 1 --ranks {} {}", L, N,
                                             flags))["extra"]["traffic"]["measured"],
                2 * 4 * P / N * (N - 1))
          << N << " " << flags;
}

}  // namespace
}  // namespace ladder::test
