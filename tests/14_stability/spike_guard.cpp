// The spike guard: what it skips, what it learns from, and what a checkpoint keeps of it.
#include "chapters/14_stability/spike_guard.h"

#include <limits>

#include <gtest/gtest.h>

namespace ladder::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A guard of 4 deviations that has seen `count` steps with losses of 2 +- 0.1 and norms of
/// 1 +- 0.1.
SpikeGuard calm(int count, double deviations = 4) {
  SpikeGuard guard({.deviations = deviations});
  for (int i = 0; i < count; ++i) {
    const double wave = i % 2 == 0 ? 0.1 : -0.1;
    EXPECT_EQ(guard.judge(2 + wave, 1 - wave), "");
  }
  return guard;
}

TEST(SpikeGuard, SkipsASpike) {
  // Mean 2 and deviation 0.1: the limit is 2.4.
  EXPECT_NE(calm(64).judge(2.41, 1), "");
  EXPECT_EQ(calm(64).judge(2.39, 1), "");
  EXPECT_NE(calm(64).judge(2, 1.41), "");
  EXPECT_EQ(calm(64).judge(2, 1.39), "");
  EXPECT_EQ(calm(64).judge(0.1, 0.1), "");  // only upwards
}

TEST(SpikeGuard, SaysWhatItSaw) {
  EXPECT_EQ(calm(64).judge(7, 1), "loss 7.000 is above 2.400 (2.000 and 4 deviations)");
  EXPECT_EQ(calm(64).judge(2, 9), "gradient norm 9.000 is above 1.400 (1.000 and 4 deviations)");
}

TEST(SpikeGuard, NaNAndInfAlwaysSkip) {
  for (const double deviations : {0.0, 4.0})
    for (const int seen : {0, 64}) {
      EXPECT_EQ(calm(seen, deviations).judge(kNaN, 1), "the loss is NaN or infinite");
      EXPECT_EQ(calm(seen, deviations).judge(kInf, 1), "the loss is NaN or infinite");
      EXPECT_EQ(calm(seen, deviations).judge(2, kNaN), "the gradient has a NaN or an Inf");
      EXPECT_EQ(calm(seen, deviations).judge(2, kInf), "the gradient has a NaN or an Inf");
    }
}

TEST(SpikeGuard, NaNDoesNotEnterTheWindow) {
  SpikeGuard guard = calm(64);
  const auto before = guard.state();
  for (int i = 0; i < 100; ++i) EXPECT_NE(guard.judge(kNaN, kNaN), "");
  EXPECT_EQ(guard.state(), before);
}

TEST(SpikeGuard, OffSkipsNothingFinite) {
  SpikeGuard guard = calm(64, 0);
  EXPECT_EQ(guard.judge(1e30, 1e30), "");
}

TEST(SpikeGuard, AShortWindowKnowsNoDeviation) {
  EXPECT_EQ(calm(15).judge(100, 100), "");
  EXPECT_NE(calm(16).judge(100, 100), "");
}

TEST(SpikeGuard, ASpikeDoesNotEnterTheWindow) {
  SpikeGuard guard = calm(64);
  for (int i = 0; i < 5; ++i) EXPECT_NE(guard.judge(100, 1), "") << i;
  EXPECT_EQ(guard.judge(2, 1), "");
  EXPECT_NE(guard.judge(100, 1), "");
}

TEST(SpikeGuard, TheWindowForgetsAfter64Steps) {
  SpikeGuard guard = calm(64);
  for (int i = 0; i < 64; ++i) {
    const double level = 2.0 + 0.005 * i;  // a slow rise is no spike
    EXPECT_EQ(guard.judge(level + (i % 2 == 0 ? 0.1 : -0.1), 1), "") << i;
  }
  EXPECT_EQ(guard.state().at("losses").size(), 64U);
  EXPECT_EQ(guard.judge(2.45, 1), "");  // it would have been one above the old level
}

TEST(SpikeGuard, AfterEightInARowTheWindowStartsAnew) {
  SpikeGuard guard = calm(64);
  for (int i = 0; i < 7; ++i) EXPECT_NE(guard.judge(5, 1), "") << i;
  EXPECT_EQ(guard.judge(5, 1), "");  // the level has changed for good
  EXPECT_EQ(guard.state().at("losses"), nlohmann::json({5.0}));
  EXPECT_EQ(guard.judge(50, 1), "");  // too short a window again
}

TEST(SpikeGuard, AGoodStepEndsTheRow) {
  SpikeGuard guard = calm(64);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 7; ++i) EXPECT_NE(guard.judge(5, 1), "");
    EXPECT_EQ(guard.judge(2, 1), "");
  }
}

TEST(SpikeGuard, StateGoesThroughACheckpoint) {
  SpikeGuard guard({.deviations = 3});
  for (int i = 0; i < 70; ++i) guard.judge(2 + 1.0 / (i + 3), 1.0 / (i + 7));
  for (int i = 0; i < 3; ++i) EXPECT_NE(guard.judge(9, 1), "");

  SpikeGuard restored({.deviations = 3});
  restored.set_state(nlohmann::json::parse(guard.state().dump()));
  for (const char* damage : {R"({"losses": []})", R"({"in_a_row": -1})"}) {
    nlohmann::json bad = guard.state();
    bad.update(nlohmann::json::parse(damage));
    SpikeGuard other({.deviations = 3});
    EXPECT_THROW(other.set_state(bad), UserError) << damage;
  }
  EXPECT_EQ(restored.state(), guard.state());
  for (const double loss : {9.0, 9.0, 2.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 2.5})
    EXPECT_EQ(restored.judge(loss, 0.05), guard.judge(loss, 0.05));
  EXPECT_EQ(restored.state(), guard.state());
}

TEST(BadBatch, ReplacesOneStepByRandomBytes) {
  Arena arena;
  const SpikeGuardOptions options{.bad_batch = 3};
  const Batch batch = alloc_batch(arena, 4, 64);
  int32_t* tokens = batch.tokens.data<int32_t>();
  int32_t* targets = batch.targets.data<int32_t>();
  const auto fill = [&] {
    std::fill_n(tokens, 256, 7);
    std::fill_n(targets, 256, 7);
  };
  fill();
  for (const int64_t step : {0, 2, 4}) options.inject(batch, 1, step);
  SpikeGuardOptions{}.inject(batch, 1, -1);
  EXPECT_EQ(std::count(tokens, tokens + 256, 7), 256);

  options.inject(batch, 1, 3);
  const std::vector<int32_t> first(tokens, tokens + 256);
  EXPECT_LT(std::count(tokens, tokens + 256, 7), 20);
  EXPECT_LT(std::count(targets, targets + 256, 7), 20);
  EXPECT_TRUE(std::all_of(targets, targets + 256, [](int32_t t) { return t >= 0 && t < 256; }));
  EXPECT_TRUE(std::all_of(tokens, tokens + 256, [](int32_t t) { return t >= 0 && t < 256; }));
  fill();
  options.inject(batch, 1, 3);
  EXPECT_EQ(std::vector<int32_t>(tokens, tokens + 256), first);
  options.inject(batch, 2, 3);
  EXPECT_NE(std::vector<int32_t>(tokens, tokens + 256), first);
}

}  // namespace
}  // namespace ladder::test
