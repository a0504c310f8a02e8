// Delayed scaling: the scale of a tensor is known before the tensor is.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>

#include "kernels/narrow.h"
#include "kernels/tensor.h"

namespace ladder {

/// How the scale of one tensor follows what is in it.
struct DelayedScale {
  static constexpr size_t kHistory = 16;  ///< steps
  static constexpr int kMargin = 1;       ///< binary digits left free for a larger amax

  Dtype dtype;
  std::deque<float> history = {};  ///< of amax, the newest last

  /// After a step with `now`: amax joins the history, and the scale follows. An amax of NaN or Inf
  /// does not: Fp8::judge() has skipped that step. Returns the scale of the next step.
  Fp8Scale next(const Fp8Scale& now) {
    if (std::isfinite(now.amax)) history.push_back(now.amax);
    if (history.size() > kHistory) history.pop_front();
    const float amax = history.empty() ? 0 : *std::max_element(history.begin(), history.end());
    if (amax == 0) return {.scale = now.scale, .amax = 0};
    const Format& format = format_of(dtype);
    const float largest = widen(format, format.first_special() - 1);
    // ilogb is floor(log2) without rounding.
    const int exponent = std::ilogb(largest / amax) - kMargin;
    return {.scale = std::clamp(std::ldexp(1.0f, exponent), 1 / kMaxFp8Scale, kMaxFp8Scale),
            .amax = 0};
  }
};

}  // namespace ladder
