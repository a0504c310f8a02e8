// FP8: the scale of one tensor over the steps.
#include "chapters/05_mixed_precision/fp8.h"

#include <limits>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr float kLargestE4M3 = 448, kLargestE5M2 = 57344;

/// After one step with this amax.
DelayedScale after(Dtype dtype, float amax) {
  DelayedScale scale{.dtype = dtype, .now{.scale = 1, .amax = amax}, .history{}};
  scale.update();
  return scale;
}

TEST(DelayedScale, IsThePowerOfTwoOfTheFormula) {
  // 448 = 1.75 x 2^8, and one digit is left free: amax 1.75 may be scaled by 2^7.
  EXPECT_EQ(after(Dtype::E4M3, 1.75F).now.scale, 128);
  EXPECT_EQ(after(Dtype::E4M3, std::nextafter(1.75F, 2.0F)).now.scale, 64);
  EXPECT_EQ(after(Dtype::E4M3, 1).now.scale, 128);
  EXPECT_EQ(after(Dtype::E4M3, kLargestE4M3).now.scale, 0.5F);
  EXPECT_EQ(after(Dtype::E4M3, 4000).now.scale, 1.0F / 32);  // floor, also below 1
  // 57344 = 1.75 x 2^15.
  EXPECT_EQ(after(Dtype::E5M2, 1.75F).now.scale, 0x1p14F);
  EXPECT_EQ(after(Dtype::E5M2, 1.76F).now.scale, 0x1p13F);
  EXPECT_EQ(after(Dtype::E5M2, 1e-6F).now.scale, 0x1p34F);
}

TEST(DelayedScale, LeavesRoomForTwiceAmaxAndNotForFourTimes) {
  for (const auto& [dtype, largest] :
       {std::pair{Dtype::E4M3, kLargestE4M3}, {Dtype::E5M2, kLargestE5M2}})
    for (float amax = 1e-9F; amax < 1e9F; amax *= 1.37F) {
      const float scale = after(dtype, amax).now.scale;
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5F) << amax;
      EXPECT_LE(2 * amax * scale, largest) << amax;
      EXPECT_GT(4 * amax * scale, largest) << amax;
    }
}

TEST(DelayedScale, FollowsTheLargestOf16Steps) {
  DelayedScale scale = after(Dtype::E4M3, 100);
  const float small = scale.now.scale;
  for (int step = 1; step < 16; ++step) {
    scale.now.amax = 1;
    scale.update();
    EXPECT_EQ(scale.now.scale, small) << step;
  }
  scale.now.amax = 1;
  scale.update();  // the 100 is 16 steps old
  EXPECT_EQ(scale.now.scale, 128);
  EXPECT_EQ(scale.history.size(), 16U);
  scale.now.amax = 100;  // a larger one counts at once
  scale.update();
  EXPECT_EQ(scale.now.scale, small);
}

TEST(DelayedScale, ForgetsAmaxAfterEveryStep) {
  EXPECT_EQ(after(Dtype::E4M3, 100).now.amax, 0);
  EXPECT_EQ(after(Dtype::E4M3, std::nanf("")).now.amax, 0);
}

TEST(DelayedScale, NaNAndInfDoNotEnterTheHistory) {
  DelayedScale scale = after(Dtype::E5M2, 3);
  const DelayedScale before = scale;
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    scale.now.amax = bad;
    scale.update();
    EXPECT_EQ(scale.now.scale, before.now.scale);
    EXPECT_EQ(scale.history, before.history);
  }
}

TEST(DelayedScale, OnlyZerosKeepTheScale) {
  DelayedScale scale{.dtype = Dtype::E4M3, .now{.scale = 32, .amax = 0}, .history{}};
  for (int step = 0; step < 3; ++step) scale.update();
  EXPECT_EQ(scale.now.scale, 32);
}

class Fp8Model : public ::testing::Test {
 protected:
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
};

TEST_F(Fp8Model, StateGoesThroughACheckpoint) {
  GptTensors w = layout.view(params), again = layout.view(params);
  Activations acts = alloc_activations(arena, config, 2, {.dtype = Dtype::BF16}), other = acts;
  Fp8 fp8(arena, config, 2, 2, true), restored(arena, config, 2, 2, true);
  fp8.attach(w, acts);
  restored.attach(again, other);
  fp8.start(box.ctx());
  for (int step = 0; step < 20; ++step) {
    acts.blocks[1].attn.codes.inp.fp8->amax = static_cast<float>(step);
    fp8.end_step(box.ctx());
  }
  restored.set_state(nlohmann::json::parse(fp8.state().dump()));
  restored.start(box.ctx());
  EXPECT_EQ(restored.state(), fp8.state());
  const Tensor codes = w.blocks[1].mlp.fc.w;
  EXPECT_EQ(codes.dtype, Dtype::E4M3);
  EXPECT_TRUE(same_bits(again.blocks[1].mlp.fc.w, codes));
  EXPECT_EQ(other.blocks[1].attn.codes.inp.fp8->scale, acts.blocks[1].attn.codes.inp.fp8->scale);
}

TEST_F(Fp8Model, InitialWeightsHaveAScaleOfTheirOwn) {
  GptTensors w = layout.view(params);
  const Tensor source = w.blocks[0].attn.qkv.w;
  Activations acts = alloc_activations(arena, config, 2, {.dtype = Dtype::BF16});
  Fp8 fp8(arena, config, 2, 2, true);
  fp8.attach(w, acts);
  fp8.start(box.ctx());
  const Tensor codes = w.blocks[0].attn.qkv.w;
  EXPECT_EQ(codes.fp8->scale, 2048);               // 448 / 0.1 = 4480, and a digit free
  EXPECT_LT(relative_error(codes, source), 0.04);  // 3 digits: 2^-4 at most
}

TEST_F(Fp8Model, AnEvaluationLeavesNoTrace) {
  GptTensors w = layout.view(params);
  Activations acts = alloc_activations(arena, config, 2, {.dtype = Dtype::BF16});
  Fp8 fp8(arena, config, 2, 2, true);
  fp8.attach(w, acts);
  fp8.start(box.ctx());
  const Fp8Scale weight = *w.blocks[0].mlp.proj_w.fp8;
  acts.blocks[0].mlp.codes.dmid.fp8->amax = 1e3F;
  fp8.begin_step();
  EXPECT_EQ(acts.blocks[0].mlp.codes.dmid.fp8->amax, 0);
  EXPECT_EQ(w.blocks[0].mlp.proj_w.fp8->amax, weight.amax);  // made at the end of the last step
  EXPECT_GT(weight.amax, 0);
}

}  // namespace
}  // namespace ladder::test
