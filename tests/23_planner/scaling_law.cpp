// Compute-optimal models: the numbers of the papers, and that the optimum is one.
#include "chapters/23_planner/scaling_law.h"

#include <cmath>

#include <gtest/gtest.h>

namespace ladder::planner {
namespace {

// At Gopher's budget Besiroglu's fit has 18.4 tokens for a parameter; Hoffmann's, whose exponents
// are printed with two digits, 92.6.
TEST(ScalingLaw, TokensAParameter) {
  EXPECT_NEAR(optimum(kBesiroglu, kGopher).tokens_a_parameter(), 18.4, 0.1);
  EXPECT_NEAR(optimum(kHoffmann, kGopher).tokens_a_parameter(), 92.6, 0.5);
  const Optimum first = approaches(kGopher)[1].at;
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

// arXiv 2001.08361, appendix A: 1.3e9 parameters at one petaflop-day, and 0.73 for the exponent.
TEST(ScalingLaw, KaplansModelsAreLarger) {
  const Optimum day = approaches(kPetaflopDay)[0].at;
  EXPECT_NEAR(day.parameters, 1.3e9, 1);
  const Optimum ten = approaches(10 * kPetaflopDay)[0].at;
  EXPECT_NEAR(ten.parameters / day.parameters, 5.37, 0.01);
  EXPECT_GT(approaches(kGopher)[0].at.parameters, 10 * approaches(kGopher)[1].at.parameters);
}

// Without inference it is the optimum; with more, a smaller model learns from more tokens, comes to
// the same loss, and no neighbor takes less.
TEST(ScalingLaw, WhatIsUsedForLongIsSmaller) {
  for (const LossLaw& law : {kHoffmann, kBesiroglu})
    for (const double flops : {1e21, kGopher}) {
      const Optimum best = optimum(law, flops);
      EXPECT_NEAR(served(law, flops, 0).parameters / best.parameters, 1, 1e-3);
      double last = best.parameters;
      for (const double inference : {1e11, 1e12, 1e13, 1e15}) {
        const Optimum at = served(law, flops, inference);
        EXPECT_LT(at.parameters, last);
        last = at.parameters;
        EXPECT_NEAR(law.loss(at.parameters, at.tokens), law.loss(best.parameters, best.tokens),
                    1e-9);
        EXPECT_LT(lifetime(at, inference), lifetime(best, inference));
        for (const double factor : {0.97, 1.03}) {
          const double N = at.parameters * factor, left = law.loss(at.parameters, at.tokens) -
                                                          law.E - law.A / std::pow(N, law.alpha);
          if (left <= 0) continue;  // so small a model does not come to the loss
          const Optimum near{N, std::pow(law.B / left, 1 / law.beta)};
          EXPECT_GT(lifetime(near, inference), lifetime(at, inference)) << factor;
        }
      }
    }
}

}  // namespace
}  // namespace ladder::planner
