// The loss of a batch and the norm of its gradient do not depend on how the batch is cut.
#include <cmath>
#include <limits>

#include "common/model/measure.h"
#include "kernels/tree.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

GptConfig padded() {
  GptConfig config = preset("nano");
  config.layers = 2;
  config.channels = 24;
  config.padded_vocab = 259;
  return config;
}

TEST(MeanLoss, IsTheTreeOfSequencesOverTheTargets) {
  Sandbox box(ref_kernels());
  const Tensor losses = box.random({13}, 0, 9);
  const float* loss = losses.data<float>();
  const float left =
      ((loss[0] + loss[1]) + (loss[2] + loss[3])) + ((loss[4] + loss[5]) + (loss[6] + loss[7]));
  const float right = ((loss[8] + loss[9]) + (loss[10] + loss[11])) + loss[12];
  EXPECT_EQ(mean_loss(Ctx{}, losses, 77), (left + right) / 77);
}

TEST(MeanLoss, ASequenceThatIsNaNShows) {
  Sandbox box(ref_kernels());
  const Tensor losses = box.filled({5}, 1);
  losses.data<float>()[3] = std::nanf("");
  EXPECT_TRUE(std::isnan(mean_loss(Ctx{}, losses, 5)));
}

TEST(TotalLoss, AddsUpOverAnyCut) {
  Sandbox box(ref_kernels());
  const Tensor losses = box.random({12}, 0, 9);
  double sum = 0;
  for (int64_t i = 0; i < 12; i += 4) sum += total_loss(Ctx{}, losses.slice(i, 4));
  EXPECT_NEAR(sum, total_loss(Ctx{}, losses), 1e-12);
}

class GradNorm : public ::testing::TestWithParam<const Kernels& (*)()> {
 protected:
  double norm() { return grad_norm(box.ctx(), grads, layout, limbs); }

  Sandbox box{GetParam()()};
  const ParamLayout layout{padded()};
  const Tensor grads = box.random({layout.size()});
  const Tensor limbs = box.zeros(Dtype::I64, {1, kLimbs});
};
INSTANTIATE_TEST_SUITE_P(Tables, GradNorm, ::testing::Values(ref_kernels, cpu_kernels),
                         [](const auto& table) { return std::string(table.param().name); });

TEST_P(GradNorm, IsTheEuclideanNormOfTheLiveElements) {
  double squares = 0;
  for (const ParamSpec& spec : layout.specs())
    for (int64_t i = 0; i < spec.live(); ++i) squares += std::pow(at(grads, spec.offset + i), 2);
  EXPECT_NEAR(norm(), std::sqrt(squares), 1e-12 * std::sqrt(squares));
}

TEST_P(GradNorm, IsTheSameTwiceAndForAnyThreads) {
  const double once = norm();
  for (const int threads : {1, 2, 3}) {
    box.set_threads(threads);
    EXPECT_EQ(norm(), once) << threads;
  }
}

TEST_P(GradNorm, DoesNotSeePaddingAndSeesEverythingElse) {
  const double before = norm();
  std::vector<bool> live(static_cast<size_t>(layout.size()));
  for (const ParamSpec& spec : layout.specs())
    std::fill_n(live.begin() + spec.offset, spec.live(), true);
  for (int64_t i = 0; i < layout.size(); ++i)
    if (!live[static_cast<size_t>(i)]) grads.data<float>()[i] = 1e9F;
  EXPECT_EQ(norm(), before);

  for (const ParamSpec& spec : layout.specs()) {
    float& last = grads.data<float>()[spec.offset + spec.live() - 1];
    const float was = last;
    last += 1;
    EXPECT_NE(norm(), before) << spec.name;
    last = was;
  }
}

// A device takes longer to start a call for each tensor than to sum.
TEST(GradNormOfNeighbors, IsOneCallUpToPadding) {
  static int calls = 0;
  static const Kernels counting = [] {
    Kernels kernels = ref_kernels();
    kernels.squared_norm = [](const Ctx& ctx, Tensor limbs, Tensor x) {
      ++calls;
      ref_kernels().squared_norm(ctx, limbs, x);
    };
    return kernels;
  }();
  Sandbox box(counting);
  GptConfig config = preset("nano");
  config.padded_vocab = config.vocab + 64;
  const ParamLayout layout(config);
  (void)grad_norm(box.ctx(), box.random({layout.size()}), layout,
                  box.zeros(Dtype::I64, {1, kLimbs}));
  EXPECT_EQ(calls, 2);  // live rows of wte; all from wpe to those of the head
}

TEST_P(GradNorm, IsNaNIfAnythingIsNaNOrInfinite) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    float& last = grads.data<float>()[layout.specs().back().offset];
    const float was = last;
    last = bad;
    EXPECT_TRUE(std::isnan(norm()));
    last = was;
  }
  EXPECT_FALSE(std::isnan(norm()));
}

}  // namespace
}  // namespace ladder::test
