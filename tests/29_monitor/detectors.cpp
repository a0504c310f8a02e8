// Detectors: their formulas on numbers that a reader can follow.
#include "chapters/29_monitor/detectors.h"

#include <gtest/gtest.h>

namespace ladder::test {
namespace {

std::deque<double> wave(int n, double level, double size) {
  std::deque<double> all;
  for (int i = 0; i < n; ++i) all.push_back(level + (i % 2 == 0 ? size : -size));
  return all;
}

TEST(Detectors, MediansAndSpikes) {
  EXPECT_EQ(median_of({5, 1, 9}), 5);
  EXPECT_EQ(median_of({5, 1, 9, 7}), 6);
  // All are 0.1 away from the median, so MAD is 0.1.
  EXPECT_NEAR(spike_limit(wave(32, 2, 0.1), 4, 16), 2 + 4 * 1.4826 * 0.1, 1e-12);
  // One far-off number moves a mean, but no median.
  std::deque<double> one_far = wave(31, 2, 0.1);
  one_far.push_back(1000);
  EXPECT_LT(spike_limit(one_far, 4, 16), 3);
  EXPECT_NEAR(spike_limit(wave(32, 2, 0), 4, 16), 2 + 4 * 0.04, 1e-12);  // the floor
  EXPECT_EQ(spike_limit(wave(15, 2, 0.1), 4, 16), std::numeric_limits<double>::infinity());
}

TEST(Detectors, SlopesOfLeastSquares) {
  EXPECT_EQ(slope_of({1, 3, 5}), 2);
  EXPECT_NEAR(slope_of({1, 0, 2, 1}), 0.2, 1e-15);
  EXPECT_EQ(slope_of({2, 2}), 0);
}

class Heard : public ::testing::Test {
 protected:
  Arena arena;
  ParamLayout params{preset("nano")};
  Watch blind{arena, params, params, Dtype::F32, 64, {}};
  PrecisionOptions precision;
  Detectors detectors{{.on = true, .deviations = 6}, false, precision};
  int64_t step = 0;

  /// The kinds of alarms of a step.
  std::string hear(float loss, double norm = 1) {
    std::string kinds;
    for (const Alarm& alarm : detectors.look(
             {.step = step++, .loss = loss, .grad_norm = norm, .lr = 1e-3f, .tokens = 64}, blind))
      kinds += alarm.kind + ";";
    return kinds;
  }
  void calm(int steps) {
    for (int i = 0; i < steps; ++i) EXPECT_EQ(hear(3.0f - 0.01f * static_cast<float>(step)), "");
  }
};

TEST_F(Heard, ASpikeOnceAndItDoesNotEnterTheWindow) {
  calm(30);
  EXPECT_EQ(hear(9), "spike;");
  EXPECT_EQ(hear(9), "");  // it stands
  calm(5);
  EXPECT_EQ(hear(2.5f, 9), "spike;");
}

// A level that stays is one.
TEST_F(Heard, ADivergence) {
  calm(30);
  std::string kinds;
  for (int i = 0; i < 30; ++i) kinds += hear(3.2f);
  EXPECT_EQ(kinds, "divergence;");
}

TEST_F(Heard, NaN) {
  calm(3);
  EXPECT_EQ(hear(std::numeric_limits<float>::quiet_NaN()), "not finite;");
  EXPECT_EQ(hear(2, std::numeric_limits<double>::infinity()), "not finite;");
  calm(5);
}

// The loss scaler's matter; a loss is not.
TEST_F(Heard, AnOverflowOfFp16IsNoAlarm) {
  precision.name = "fp16";
  detectors = Detectors({.on = true, .deviations = 6}, false, precision);
  EXPECT_EQ(hear(3, std::numeric_limits<double>::infinity()), "");
  EXPECT_EQ(hear(std::numeric_limits<float>::quiet_NaN()), "not finite;");
}

TEST_F(Heard, APlateauAfterAHundredSteps) {
  calm(100);
  std::string kinds;
  for (int i = 0; i < 120; ++i) kinds += hear(2.0f + (i % 2 == 0 ? 0.01f : -0.01f));
  EXPECT_EQ(kinds, "plateau;");
}

TEST_F(Heard, StateGoesThroughACheckpoint) {
  calm(40);
  EXPECT_EQ(hear(9), "spike;");
  Detectors restored({.on = true, .deviations = 6}, false, precision);
  restored.set_state(nlohmann::json::parse(detectors.state().dump()));
  EXPECT_EQ(restored.state(), detectors.state());
  EXPECT_TRUE(
      restored.look({.step = 41, .loss = 9, .grad_norm = 1, .lr = 1, .tokens = 1}, blind).empty());
  nlohmann::json bad = detectors.state();
  bad["count"] = -1;
  EXPECT_THROW(restored.set_state(bad), UserError);
}

}  // namespace
}  // namespace ladder::test
