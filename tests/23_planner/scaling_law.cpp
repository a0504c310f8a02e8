// Compute-optimal models: the numbers of the papers, and that the optimum is one.
#include "chapters/23_planner/scaling_law.h"

#include <gtest/gtest.h>

namespace ladder::planner {
namespace {

// At Gopher's budget Besiroglu's fit has 18.4 tokens for a parameter; Hoffmann's, whose exponents
// are printed with two digits, 92.6.
TEST(ScalingLaw, TokensAParameter) {
  EXPECT_NEAR(optimum(kBesiroglu, kGopher).tokens_a_parameter(), 18.4, 0.1);
  EXPECT_NEAR(optimum(kHoffmann, kGopher).tokens_a_parameter(), 92.6, 0.5);
  const Optimum first = approaches(kGopher)[0].at;
  EXPECT_NEAR(first.parameters / 1e9, 67, 0.01);
  EXPECT_NEAR(first.tokens / 1e12, 1.43, 0.01);
}

TEST(ScalingLaw, TheOptimumIsTheLeastLossOfItsBudget) {
  for (const LossLaw& law : {kHoffmann, kBesiroglu})
    for (const double flops : {1e18, 1e21, 1e25}) {
      const auto [N, D] = optimum(law, flops);
      EXPECT_NEAR(6 * N * D / flops, 1, 1e-12);
      for (const double factor : {0.8, 0.95, 1.05, 1.25})
        EXPECT_GT(law.loss(N * factor, D / factor), law.loss(N, D)) << flops << " " << factor;
    }
}

}  // namespace
}  // namespace ladder::planner
