// The loss scaler: how the scale moves, and what a checkpoint keeps of it.
#include "chapters/05_mixed_precision/loss_scaler.h"

#include <limits>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

LossScaler fp16(const LossScaleOptions& options) { return {options, {.name = "fp16"}}; }

/// Ends `count` steps without overflow.
void good_steps(LossScaler& scaler, int count) {
  for (int i = 0; i < count; ++i) EXPECT_EQ(scaler.end_step(2, 1), "") << i;
}

TEST(LossScaler, DoublesAfterAWindowOfGoodSteps) {
  LossScaler scaler = fp16({.initial = 8, .window = 3});
  for (const float scale : {8.0F, 16.0F, 32.0F}) {
    EXPECT_EQ(scaler.scale(), scale);
    good_steps(scaler, 2);
    EXPECT_EQ(scaler.scale(), scale);
    good_steps(scaler, 1);
    EXPECT_EQ(scaler.scale(), 2 * scale);
  }
}

TEST(LossScaler, HalvesAtEveryOverflow) {
  LossScaler scaler = fp16({.initial = 64, .window = 3});
  for (const double norm : {kInf, kNaN, -kInf}) EXPECT_NE(scaler.end_step(2, norm), "");
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_EQ(scaler.state().at("skipped"), 3);
}

TEST(LossScaler, AnOverflowStartsTheWindowAnew) {
  LossScaler scaler = fp16({.initial = 64, .window = 3});
  good_steps(scaler, 2);
  EXPECT_NE(scaler.end_step(2, kInf), "");
  good_steps(scaler, 2);
  EXPECT_EQ(scaler.scale(), 32);
  good_steps(scaler, 1);
  EXPECT_EQ(scaler.scale(), 64);
}

TEST(LossScaler, AStepWithoutALossDoesNotCount) {
  LossScaler scaler = fp16({.initial = 64, .window = 3});
  good_steps(scaler, 2);
  EXPECT_EQ(scaler.end_step(kNaN, 1), "the loss is NaN or infinite");
  EXPECT_EQ(scaler.scale(), 64);
  good_steps(scaler, 1);
  EXPECT_EQ(scaler.scale(), 128);
}

TEST(LossScaler, StaysBetweenOneAnd2To24) {
  LossScaler scaler = fp16({.initial = 2, .window = 1});
  for (int i = 0; i < 5; ++i) EXPECT_NE(scaler.end_step(2, kInf), "");
  EXPECT_EQ(scaler.scale(), 1);
  good_steps(scaler, 100);
  EXPECT_EQ(scaler.scale(), 0x1p24F);
}

TEST(LossScaler, AFixedScaleStaysAndStillSkips) {
  LossScaler scaler = fp16({.initial = 64, .fixed = true, .window = 1});
  good_steps(scaler, 5);
  EXPECT_EQ(scaler.scale(), 64);
  EXPECT_NE(scaler.end_step(2, kNaN), "");
  EXPECT_EQ(scaler.scale(), 64);
  EXPECT_EQ(scaler.state().at("skipped"), 1);
}

TEST(LossScaler, OtherPrecisionsHaveNone) {
  for (const char* name : {"fp32", "bf16"}) {
    LossScaler scaler({.initial = 64, .window = 1}, {.name = name});
    EXPECT_EQ(scaler.scale(), 1) << name;
    good_steps(scaler, 3);
    EXPECT_EQ(scaler.end_step(2, kNaN), "the gradient has a NaN or an Inf") << name;
    EXPECT_EQ(scaler.end_step(kNaN, 1), "the loss is NaN or infinite") << name;
    EXPECT_EQ(scaler.scale(), 1) << name;
    nlohmann::json extra = nlohmann::json::object();
    scaler.report(extra);
    EXPECT_TRUE(extra.empty()) << name;
  }
}

TEST(LossScaler, RefusesADamagedState) {
  LossScaler scaler = fp16({.initial = 64});
  const nlohmann::json good = scaler.state();
  for (const double scale : {0.0, -1.0, 3.3, 0x1p25, 0x1p-25, 1e300}) {
    nlohmann::json bad = good;
    bad["scale"] = scale;
    EXPECT_THROW(scaler.set_state(bad), UserError) << scale;
  }
  for (const char* count : {"good", "skipped"}) {
    nlohmann::json bad = good;
    bad[count] = -1;
    EXPECT_THROW(scaler.set_state(bad), UserError) << count;
  }
  EXPECT_EQ(scaler.state(), good);
}

TEST(LossScaler, AResumeMayShortenTheWindow) {
  LossScaler longer = fp16({.initial = 64, .window = 100});
  good_steps(longer, 50);
  LossScaler shorter = fp16({.initial = 64, .window = 10});
  shorter.set_state(longer.state());
  good_steps(shorter, 1);
  EXPECT_EQ(shorter.scale(), 128);
  good_steps(shorter, 10);
  EXPECT_EQ(shorter.scale(), 256);
}

TEST(LossScaler, UnscalesExactly) {
  Sandbox box(ref_kernels());
  const Tensor grads = box.random({100}), scaled = box.copy(grads);
  for (int64_t i = 0; i < 100; ++i) scaled.data<float>()[i] *= 1024;
  fp16({.initial = 1024}).unscale(box.ctx(), scaled);
  EXPECT_TRUE(same_bits(scaled, grads));
}

TEST(LossScaler, OneThatBeganBelowOneGoesNoLower) {
  LossScaler scaler = fp16({.initial = 0.25F, .window = 2});
  EXPECT_NE(scaler.end_step(2, kInf), "");
  EXPECT_EQ(scaler.scale(), 0.25F);
  good_steps(scaler, 2);
  EXPECT_EQ(scaler.scale(), 0.5F);
}

}  // namespace
}  // namespace ladder::test
