// The precision tier: the loss curve of FP8 beside that of FP32, in a band.
#include "tests/common/loss_curves.h"

namespace ladder::test {
namespace {

class Fp8Curve : public LossCurves {
 protected:
  std::vector<double> losses(const std::string& flags) const {
    return LossCurves::losses("16_fp8", flags);
  }

  // Three times the worst of four seeds when this was written, 0.0015. That leaves room for CPUs
  // whose BF16 products add in another order.
  static constexpr double kBand = 0.0045;
};

TEST_F(Fp8Curve, StaysInItsBand) {
  const auto fp32 = losses(calm);
  ASSERT_LT(fp32.back(), 0.7 * fp32.front());  // there is something to follow
  const double far = distance(losses(calm + "--precision fp8"), fp32);
  EXPECT_LT(far, kBand);
  EXPECT_GT(far, 0);
}

// Negative controls: what is broken leaves the band.
TEST_F(Fp8Curve, WithoutMasterWeightsLeavesTheBand) {
  EXPECT_GT(distance(losses(calm + "--master 16 --precision fp8"), losses(calm)), 1.5 * kBand);
}

TEST_F(Fp8Curve, OfATenthMoreLearningRateLeavesTheBand) {
  EXPECT_GT(distance(losses("--lr 2.2e-4 --precision fp8"), losses(calm)), 1.5 * kBand);
}

}  // namespace
}  // namespace ladder::test
