// Learning rates under a ramp: warmup is counted in tokens, of which steps have more and more.
#include "chapters/03_schedules/schedule.h"

#include <gtest/gtest.h>

#include "chapters/15_batch_size/batch_ramp.h"

namespace ladder::test {
namespace {

constexpr double kPeak = 3e-3;
constexpr int64_t kTotal = 100, kBatch = 8, kSeqLen = 16;

Schedule ramped(const ScheduleOptions& options, const std::vector<std::string>& stages) {
  return {options, kPeak, kTotal, BatchRamp({.stages = stages}, kBatch).tokens_before(kSeqLen)};
}

/// A share of the way from the peak down to min_lr 0.1.
float down(double share) { return static_cast<float>(kPeak + (0.1 * kPeak - kPeak) * share); }
float up(double share) { return static_cast<float>(kPeak * share); }

TEST(Schedule, WarmupByTokensUnderARamp) {
  // Steps of 2, 2, 4, 8, 8, ... sequences: 32, 64, 128, 256, 384, 512, 640 tokens so far.
  const Schedule s = ramped({.kind = ScheduleKind::Linear, .warmup_tokens = 600}, {"2:2", "4:3"});
  EXPECT_EQ(s.lr(0), up(32 / 600.0));
  EXPECT_EQ(s.lr(1), up(64 / 600.0));
  EXPECT_EQ(s.lr(2), up(128 / 600.0));
  EXPECT_EQ(s.lr(5), up(512 / 600.0));
  EXPECT_EQ(s.lr(6), up(1));
  EXPECT_EQ(s.lr(7 + 31), down(1 / 3.0));
  EXPECT_EQ(s.lr(100), down(1));
}

TEST(Schedule, WithoutStagesARampIsAConstantBatch) {
  for (const ScheduleOptions& options :
       {ScheduleOptions{.kind = ScheduleKind::Cosine, .warmup_tokens = 1000},
        {.kind = ScheduleKind::Wsd, .warmup = 7}}) {
    const Schedule ramp = ramped(options, {}), plain(options, kPeak, kTotal, kBatch * kSeqLen);
    for (int64_t step = 0; step < 2 * kTotal; ++step) EXPECT_EQ(ramp.lr(step), plain.lr(step));
  }
}

}  // namespace
}  // namespace ladder::test
