// What the norm of a gradient sees, and what it does not. Its values: tests/golden; that no cut of
// the batch changes them: ../layouts.txt.
#include <cmath>
#include <limits>

#include "common/model/measure.h"
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
