// The precision tier of 05 and 16: loss curves of `tiny`, shortened, beside that of FP32, in bands.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

// Three times the worst of four seeds when this was written: 0.0014, 0.0001 and 0.0015. That leaves
// room for CPUs whose BF16 products add in another order.
struct Band {
  std::string chapter, precision;
  double relative;
};
const Band kBands[] = {{"05_mixed_precision", "bf16", 0.0042},
                       {"05_mixed_precision", "fp16", 0.0003},
                       {"16_fp8", "fp8", 0.0045}};

class LossCurves : public SameTrace {
 protected:
  static constexpr int64_t kLong = 40;

  std::vector<double> losses(const Program& program, const std::string& flags) const {
    const Trace run = trace(program, "--model tiny --seq-len 32 --batch 8 " + flags, {0, kLong});
    std::vector<double> all;
    for (const TraceStep& step : run.steps) all.push_back(std::strtod(step.loss.c_str(), nullptr));
    return all;
  }
  std::vector<double> fp32() const { return losses("05_mixed_precision", calm); }

  /// The largest |a - b| / b over the steps; infinite if a step is missing or no number.
  static double distance(const std::vector<double>& a, const std::vector<double>& b) {
    double largest = 0;
    if (std::ssize(a) != kLong || std::ssize(b) != kLong)
      return std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < a.size(); ++i) {
      const double relative = std::abs(a[i] - b[i]) / b[i];
      if (!std::isfinite(relative)) return std::numeric_limits<double>::infinity();
      largest = std::max(largest, relative);
    }
    return largest;
  }

  // Where a run is about to spike, any rounding grows: at this learning rate it is calm. The loss
  // scale does not overflow, so that no step is skipped.
  const std::string calm = "--lr 2e-4 --loss-scale 1024 ";
};

TEST_F(LossCurves, StayInTheirBands) {
  const auto wide = fp32();
  ASSERT_LT(wide.back(), 0.7 * wide.front());  // there is something to follow
  for (const auto& [chapter, precision, band] : kBands) {
    const double far = distance(losses(chapter, calm + "--precision " + precision), wide);
    EXPECT_LT(far, band) << precision;
    EXPECT_GT(far, 0) << precision;
  }
}

// Negative controls: what is broken leaves the bands.
TEST_F(LossCurves, WithoutMasterWeightsLeaveTheBands) {
  const auto wide = fp32();
  for (const auto& [chapter, precision, band] : kBands)
    EXPECT_GT(distance(losses(chapter, calm + "--master 16 --precision " + precision), wide),
              1.5 * band)
        << precision;
}

TEST_F(LossCurves, OfATenthMoreLearningRateLeaveTheBands) {
  const auto wide = fp32();
  const std::string hasty = "--lr 2.2e-4 --loss-scale 1024 --precision ";
  for (const auto& [chapter, precision, band] : kBands)
    EXPECT_GT(distance(losses(chapter, hasty + precision), wide), 1.5 * band) << precision;
}

TEST_F(LossCurves, OfFp16WithAWrongScaleThatIsFixedLeaveTheBand) {
  const auto wide = fp32();
  // Too large: every step overflows, nothing is learned. Too small: most gradients are zero.
  for (const std::string scale : {"16777216", "0.000244140625"}) {
    must_end_with(scale == "16777216" ? 3 : 0);
    const std::string fixed = "--lr 2e-4 --precision fp16 --fixed-loss-scale --loss-scale ";
    const double far = distance(losses("05_mixed_precision", fixed + scale), wide);
    EXPECT_GT(far, 0.05) << scale;
    EXPECT_TRUE(std::isfinite(far)) << scale;
  }
}

}  // namespace
}  // namespace ladder::test
