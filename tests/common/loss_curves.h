// The precision tier: loss curves of `tiny`, shortened, and how far they lie apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/common/same_trace.h"

namespace ladder::test {

class LossCurves : public SameTrace {
 protected:
  static constexpr int64_t kLong = 40;

  std::vector<double> losses(const Program& program, const std::string& flags) const {
    const Trace run = trace(program, "--model tiny --seq-len 32 --batch 8 " + flags, {0, kLong});
    std::vector<double> all;
    for (const TraceStep& step : run.steps) all.push_back(std::strtod(step.loss.c_str(), nullptr));
    return all;
  }

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

}  // namespace ladder::test
