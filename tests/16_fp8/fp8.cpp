// FP8: the scale of one tensor over the steps.
#include "chapters/16_fp8/fp8.h"

#include <limits>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr float kLargestE4M3 = 448, kLargestE5M2 = 57344;

/// After one step with this amax.
Fp8Scale after(Dtype dtype, float amax) {
  return DelayedScale{.dtype = dtype}.next({.scale = 1, .amax = amax});
}

TEST(DelayedScale, IsThePowerOfTwoOfTheFormula) {
  // 448 = 1.75 x 2^8, and one digit is left free: amax 1.75 may be scaled by 2^7.
  EXPECT_EQ(after(Dtype::E4M3, 1.75F).scale, 128);
  EXPECT_EQ(after(Dtype::E4M3, std::nextafter(1.75F, 2.0F)).scale, 64);
  EXPECT_EQ(after(Dtype::E4M3, 1).scale, 128);
  EXPECT_EQ(after(Dtype::E4M3, kLargestE4M3).scale, 0.5F);
  EXPECT_EQ(after(Dtype::E4M3, 4000).scale, 1.0F / 32);  // floor, also below 1
  // 57344 = 1.75 x 2^15.
  EXPECT_EQ(after(Dtype::E5M2, 1.75F).scale, 0x1p14F);
  EXPECT_EQ(after(Dtype::E5M2, 1.76F).scale, 0x1p13F);
  EXPECT_EQ(after(Dtype::E5M2, 1e-6F).scale, 0x1p34F);
}

TEST(DelayedScale, LeavesRoomForTwiceAmaxAndNotForFourTimes) {
  for (const auto& [dtype, largest] :
       {std::pair{Dtype::E4M3, kLargestE4M3}, {Dtype::E5M2, kLargestE5M2}})
    for (float amax = 1e-9F; amax < 1e9F; amax *= 1.37F) {
      const float scale = after(dtype, amax).scale;
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5F) << amax;
      EXPECT_LE(2 * amax * scale, largest) << amax;
      EXPECT_GT(4 * amax * scale, largest) << amax;
    }
}

TEST(DelayedScale, FollowsTheLargestOf16Steps) {
  DelayedScale rule{.dtype = Dtype::E4M3};
  const auto next = [&](float amax) { return rule.next({.scale = 1, .amax = amax}).scale; };
  const float small = next(100);
  for (int step = 1; step < 16; ++step) EXPECT_EQ(next(1), small) << step;
  EXPECT_EQ(next(1), 128);  // the 100 is 16 steps old
  EXPECT_EQ(rule.history.size(), 16U);
  EXPECT_EQ(next(100), small);  // a larger one counts at once
}

TEST(DelayedScale, ForgetsAmaxAfterEveryStep) {
  EXPECT_EQ(after(Dtype::E4M3, 100).amax, 0);
  EXPECT_EQ(after(Dtype::E4M3, std::nanf("")).amax, 0);
}

// Else the product of two factors' scales would not be a float.
TEST(DelayedScale, IsBoundedForWhatIsNextToNothingOrFarTooLarge) {
  for (const Dtype dtype : {Dtype::E4M3, Dtype::E5M2}) {
    EXPECT_EQ(after(dtype, 1e-30F).scale, 0x1p60F);
    EXPECT_EQ(after(dtype, std::numeric_limits<float>::denorm_min()).scale, 0x1p60F);
    EXPECT_EQ(after(dtype, 1e30F).scale, 0x1p-60F);
  }
}

TEST(DelayedScale, NaNAndInfDoNotEnterTheHistory) {
  DelayedScale rule{.dtype = Dtype::E5M2};
  const Fp8Scale before = rule.next({.scale = 1, .amax = 3});
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(rule.next({.scale = before.scale, .amax = bad}).scale, before.scale);
    EXPECT_EQ(rule.history, std::deque<float>{3});
  }
}

TEST(DelayedScale, OnlyZerosKeepTheScale) {
  DelayedScale rule{.dtype = Dtype::E4M3};
  for (int step = 0; step < 3; ++step) EXPECT_EQ(rule.next({.scale = 32, .amax = 0}).scale, 32);
}

class Fp8Model : public ::testing::Test {
 protected:
  Fp8Model() {
    fp8.attach(w);
    fp8.start(box.ctx());
  }

  const GptConfig config = [] {
    GptConfig small = preset("nano");
    small.layers = 2;
    small.channels = 16;
    return small;
  }();
  const ParamLayout layout{config};
  Sandbox box{cpu_kernels()};
  Arena arena;
  const Tensor params = box.random(Dtype::BF16, {layout.size()}, -0.1, 0.1);
  const GptTensors source = layout.view(params);
  GptTensors w = source;
  Fp8 fp8{arena, config, 2, 2, true};
};

TEST_F(Fp8Model, StateGoesThroughACheckpoint) {
  GptTensors again = source;
  Fp8 restored(arena, config, 2, 2, true);
  restored.attach(again);
  for (int step = 0; step < 20; ++step) {
    fp8.attn(1).inp.fp8->amax = static_cast<float>(step);
    fp8.end_step(box.ctx());
  }
  restored.set_state(nlohmann::json::parse(fp8.state().dump()));
  Fp8 damaged(arena, config, 2, 2, true);
  for (const char* damage : {R"({"scale": 0})", R"({"scale": -2})", R"({"scale": 3})",
                             R"({"scale": 1e300})", R"({"history": [1, -1]})"}) {
    nlohmann::json bad = fp8.state();
    bad[0].update(nlohmann::json::parse(damage));
    EXPECT_THROW(damaged.set_state(bad), UserError) << damage;
  }
  restored.start(box.ctx());
  EXPECT_EQ(restored.state(), fp8.state());
  const Tensor codes = w.blocks[1].mlp.fc.w;
  EXPECT_EQ(codes.dtype, Dtype::E4M3);
  EXPECT_TRUE(same_bits(again.blocks[1].mlp.fc.w, codes));
  EXPECT_EQ(restored.attn(1).inp.fp8->scale, fp8.attn(1).inp.fp8->scale);
}

TEST_F(Fp8Model, InitialWeightsHaveAScaleOfTheirOwn) {
  const Tensor codes = w.blocks[0].attn.qkv.w;
  EXPECT_EQ(codes.fp8->scale, 2048);  // 448 / 0.1 = 4480, and a digit free
  // 3 digits: 2^-4 at most
  EXPECT_LT(relative_error(codes, source.blocks[0].attn.qkv.w), 0.04);
}

// Its code is the largest number of the format.
TEST_F(Fp8Model, AnInfiniteFactorIsJudged) {
  const Tensor losses = box.random(Dtype::F32, {2}, 1, 2);
  EXPECT_EQ(fp8.judge(box.ctx(), ""), "");
  EXPECT_EQ(fp8.judge(box.ctx(), "overflow"), "overflow");
  fp8.judge_losses(box.ctx(), losses);
  EXPECT_TRUE(std::isfinite(losses.data<float>()[0]));
  fp8.mlp(0).dmid.fp8->amax = std::numeric_limits<float>::infinity();
  EXPECT_NE(fp8.judge(box.ctx(), ""), "");
  fp8.end_step(box.ctx());
  EXPECT_EQ(fp8.judge(box.ctx(), ""), "") << "of one step";
  static_cast<uint16_t*>(source.blocks[1].mlp.fc.w.ptr)[7] = 0x7F80;  // infinity in BF16
  for (int step = 0; step < 2; ++step) {
    fp8.end_step(box.ctx());
    EXPECT_NE(fp8.judge(box.ctx(), ""), "") << step;
  }
  fp8.judge_losses(box.ctx(), losses);
  EXPECT_TRUE(std::isnan(losses.data<float>()[1]));
}

TEST_F(Fp8Model, AnEvaluationLeavesNoTrace) {
  const Fp8Scale weight = *w.blocks[0].mlp.proj_w.fp8;
  fp8.mlp(0).dmid.fp8->amax = 1e3F;
  fp8.begin_step();
  EXPECT_EQ(fp8.mlp(0).dmid.fp8->amax, 0);
  EXPECT_EQ(w.blocks[0].mlp.proj_w.fp8->amax, weight.amax);  // made at the end of the last step
  EXPECT_GT(weight.amax, 0);
}

}  // namespace
}  // namespace ladder::test
