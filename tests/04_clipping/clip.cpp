// Clipping by the global norm, and losses and gradients with which no step is taken.
#include "chapters/04_clipping/clip.h"

#include <limits>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class Clip : public ::testing::TestWithParam<const Kernels& (*)()> {
 protected:
  Sandbox box{GetParam()()};
};
INSTANTIATE_TEST_SUITE_P(Tables, Clip, ::testing::Values(ref_kernels, cpu_kernels),
                         [](const auto& table) { return std::string(table.param().name); });

TEST_P(Clip, GlobalNormBecomesTheLimit) {
  const Tensor g = box.random({1000}), before = box.copy(g);
  const double length = norm(g);
  clip_global_norm(box.ctx(), g, length, 0.5F);
  EXPECT_NEAR(norm(g), 0.5, 1e-6);
  const auto factor = static_cast<float>(0.5 / length);
  for (int64_t i = 0; i < g.size(); ++i)
    EXPECT_EQ(g.data<float>()[i], before.data<float>()[i] * factor);
}

TEST_P(Clip, ASmallGradientKeepsItsBits) {
  const Tensor g = box.random({1000}), before = box.copy(g);
  const double length = norm(g);
  clip_global_norm(box.ctx(), g, length, 100);
  EXPECT_TRUE(same_bits(g, before));
  clip_global_norm(box.ctx(), g, 2, 2);  // not above the limit
  EXPECT_TRUE(same_bits(g, before));
  clip_global_norm(box.ctx(), g, length, 0);  // off
  EXPECT_TRUE(same_bits(g, before));
}

TEST(NotFinite, SaysWhatIsNoNumber) {
  constexpr double kInf = std::numeric_limits<double>::infinity(),
                   kNaN = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {kNaN, kInf, -kInf}) {
    EXPECT_EQ(not_finite(bad, 1), "the loss is NaN or infinite");
    EXPECT_EQ(not_finite(2, bad), "the gradient has a NaN or an Inf");
    EXPECT_EQ(not_finite(bad, bad), "the loss is NaN or infinite");
  }
  EXPECT_EQ(not_finite(1e30, 1e30), "");
  EXPECT_EQ(not_finite(0, 0), "");
}

}  // namespace
}  // namespace ladder::test
