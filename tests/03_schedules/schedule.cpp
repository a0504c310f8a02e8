// Learning rates against the closed formulas, at the corners: step 0, the end of the warmup, the
// last step, and beyond.
#include "chapters/03_schedules/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

namespace ladder::test {
namespace {

constexpr double kPeak = 3e-3;
constexpr int64_t kTotal = 100, kBatch = 8, kSeqLen = 16;
constexpr int64_t kStepTokens = kBatch * kSeqLen;

constexpr ScheduleKind kAll[] = {ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine,
                                 ScheduleKind::Wsd};

Schedule schedule(const ScheduleOptions& options) { return {options, kPeak, kTotal, kStepTokens}; }

/// A share of the way from the peak down to min_lr 0.1.
float down(double share) { return static_cast<float>(kPeak + (0.1 * kPeak - kPeak) * share); }
float up(double share) { return static_cast<float>(kPeak * share); }
/// How far cosine is down after a share of its steps.
double cosine(double share) { return (1 - std::cos(std::numbers::pi * share)) / 2; }

TEST(Schedule, Warmup) {
  for (const ScheduleKind kind : kAll) {
    const Schedule s = schedule({.kind = kind, .warmup = 10});
    EXPECT_EQ(s.lr(0), up(0.1)) << to_string(kind);
    EXPECT_EQ(s.lr(4), up(0.5)) << to_string(kind);
    EXPECT_EQ(s.lr(9), up(1)) << to_string(kind);
    EXPECT_EQ(s.lr(10), up(1)) << to_string(kind);
  }
}

TEST(Schedule, NoWarmupBeginsAtThePeak) {
  for (const ScheduleKind kind : kAll)
    EXPECT_EQ(schedule({.kind = kind}).lr(0), up(1)) << to_string(kind);
}

TEST(Schedule, Constant) {
  for (const int64_t step : {0, 1, 50, 99, 100, 100000})
    EXPECT_EQ(schedule({}).lr(step), up(1)) << step;
}

TEST(Schedule, Linear) {
  const Schedule s = schedule({.kind = ScheduleKind::Linear, .warmup = 10});
  EXPECT_EQ(s.lr(55), down(0.5));
  EXPECT_EQ(s.lr(99), down(89 / 90.0));
  EXPECT_EQ(s.lr(100), down(1));
  EXPECT_EQ(s.lr(100000), down(1));
}

TEST(Schedule, Cosine) {
  const Schedule s = schedule({.kind = ScheduleKind::Cosine, .warmup = 20});
  EXPECT_FLOAT_EQ(s.lr(40), down(cosine(0.25)));
  EXPECT_FLOAT_EQ(s.lr(60), down(0.5));
  EXPECT_FLOAT_EQ(s.lr(99), down(cosine(79 / 80.0)));
  EXPECT_EQ(s.lr(100), down(1));
  EXPECT_EQ(s.lr(100000), down(1));
}

TEST(Schedule, DecayStepsEndTheDecayEarly) {
  for (const ScheduleKind kind : {ScheduleKind::Linear, ScheduleKind::Cosine}) {
    const Schedule s = schedule({.kind = kind, .warmup = 10, .decay_steps = 40});
    EXPECT_FLOAT_EQ(s.lr(30), down(0.5)) << to_string(kind);
    EXPECT_GT(s.lr(49), down(1)) << to_string(kind);
    EXPECT_EQ(s.lr(50), down(1)) << to_string(kind);
    EXPECT_EQ(s.lr(99), down(1)) << to_string(kind);
  }
}

TEST(Schedule, WsdIsStableUntilTheLastFifth) {
  const Schedule s = schedule({.kind = ScheduleKind::Wsd, .warmup = 10});
  for (const int64_t step : {10, 50, 79, 80}) EXPECT_EQ(s.lr(step), up(1)) << step;
  EXPECT_EQ(s.lr(81), down(0.05));
  EXPECT_EQ(s.lr(90), down(0.5));
  EXPECT_EQ(s.lr(99), down(0.95));
  EXPECT_EQ(s.lr(100), down(1));
  EXPECT_EQ(s.lr(100000), down(1));
}

TEST(Schedule, WsdWithCosineDecay) {
  const Schedule s =
      schedule({.kind = ScheduleKind::Wsd, .decay_steps = 40, .wsd_decay = ScheduleKind::Cosine});
  EXPECT_EQ(s.lr(60), up(1));
  EXPECT_FLOAT_EQ(s.lr(70), down(cosine(0.25)));
  EXPECT_FLOAT_EQ(s.lr(80), down(0.5));
  EXPECT_EQ(s.lr(100), down(1));
}

// As MiniCPM's: equal factors in equal times.
TEST(Schedule, WsdWithExponentialDecay) {
  const Schedule s = schedule({.kind = ScheduleKind::Wsd,
                               .min_lr = 1.0 / 16,
                               .decay_steps = 40,
                               .wsd_decay = ScheduleKind::Exponential});
  EXPECT_EQ(s.lr(60), up(1));
  EXPECT_FLOAT_EQ(s.lr(70), up(0.5));
  EXPECT_FLOAT_EQ(s.lr(80), up(0.25));
  EXPECT_FLOAT_EQ(s.lr(100), up(1.0 / 16));
}

TEST(Schedule, WsdNeverDecaysDuringWarmup) {
  const Schedule s = schedule({.kind = ScheduleKind::Wsd, .warmup = 70, .decay_steps = 60});
  EXPECT_EQ(s.lr(69), up(1));
  EXPECT_EQ(s.lr(70), up(1));
  EXPECT_EQ(s.lr(100), down(0.5));
  EXPECT_EQ(s.lr(130), down(1));
}

TEST(Schedule, MinLr) {
  for (const ScheduleKind kind : {ScheduleKind::Linear, ScheduleKind::Cosine, ScheduleKind::Wsd}) {
    EXPECT_EQ(schedule({.kind = kind, .min_lr = 0}).lr(100), 0) << to_string(kind);
    EXPECT_EQ(schedule({.kind = kind, .min_lr = 0.25}).lr(100), up(0.25)) << to_string(kind);
    for (const int64_t step : {0, 50, 90, 100})
      EXPECT_EQ(schedule({.kind = kind, .min_lr = 1}).lr(step), up(1)) << to_string(kind);
  }
}

TEST(Schedule, NeverRisesAfterWarmup) {
  for (const ScheduleKind kind : kAll) {
    const Schedule s = schedule({.kind = kind, .warmup = 7});
    for (int64_t step = 7; step < 130; ++step)
      EXPECT_GE(s.lr(step), s.lr(step + 1)) << to_string(kind);
  }
}

TEST(Schedule, WarmupByTokens) {
  // As many tokens as 10 steps have are 10 steps.
  const Schedule steps = schedule({.kind = ScheduleKind::Cosine, .warmup = 10});
  const Schedule tokens =
      schedule({.kind = ScheduleKind::Cosine, .warmup_tokens = 10 * kStepTokens});
  for (int64_t step = 0; step < 110; ++step)
    EXPECT_FLOAT_EQ(tokens.lr(step), steps.lr(step)) << step;

  // The step that passes the count has the peak, and the decay begins after it.
  const Schedule odd =
      schedule({.kind = ScheduleKind::Linear, .warmup_tokens = 1000, .decay_steps = 10});
  EXPECT_EQ(odd.lr(0), up(kStepTokens / 1000.0));
  EXPECT_EQ(odd.lr(6), up(7 * kStepTokens / 1000.0));
  EXPECT_EQ(odd.lr(7), up(1));
  EXPECT_EQ(odd.lr(8), up(1));
  EXPECT_EQ(odd.lr(9), down(0.1));
}

TEST(Schedule, MoreWarmupTokensThanTheRunHas) {
  const Schedule s = schedule({.warmup_tokens = int64_t{1} << 60});
  EXPECT_EQ(s.lr(99), up(100 * kStepTokens / 0x1p60));
}

TEST(Schedule, WarmupByTokensOfALongRun) {
  const ScheduleOptions options{.warmup_tokens = int64_t{1} << 40};
  constexpr int64_t kSteps = int64_t{1} << 40;
  const Schedule s(options, kPeak, kSteps, kStepTokens);
  EXPECT_EQ(s.lr((int64_t{1} << 32) - 1), up(0.5));  // of 2^33 steps of 2^7 tokens
  EXPECT_EQ(s.lr(kSteps - 1), up(1));
  // The whole run would have 2^70 tokens.
  const Schedule large(options, kPeak, kSteps, int64_t{1} << 30);
  EXPECT_EQ(large.lr(511), up(0.5));
  EXPECT_EQ(large.lr(1023), up(1));
  EXPECT_EQ(large.lr(kSteps - 1), up(1));
}

}  // namespace
}  // namespace ladder::test
