// 07 to 10, 18 and 30: what bytes on the wire are counted; and those of 07, written out. That they
// are as predicted: ../layouts.txt.
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

// A step that overflows ends before updated weights are gathered: each rank has sent its gradients,
// half of them.
TEST_P(RanksTraffic, OfASkippedStep) {
  must_end_with(3);
  const auto got = run("--ranks 2 --steps 1 --precision fp16 --loss-scale 8388608");
  ASSERT_EQ(got["extra"]["loss_scale"]["skipped"], 1);
  const auto& traffic = got["extra"]["traffic"];
  const bool ends_early = GetParam().gathers_after_update;
  // Most chapters predict nothing of such a step; what is predicted is what was sent.
  EXPECT_TRUE(traffic["predicted"].is_null() ||
              (!ends_early && traffic["predicted"] == traffic["measured"]));
  if (ends_early) {
    EXPECT_EQ(traffic["measured"], 4 * parameters(2, 2) / 2);
  }
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
