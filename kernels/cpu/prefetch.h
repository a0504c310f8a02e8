// Memory of a product that is asked for before it is needed.
#pragma once

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/tree.h"

namespace ladder {

/// Asks for the memory of a panel before it is packed, or of a tile of C before it is written, a
/// few lines at a time: many at once would wait for one another, and loads behind them.
class Prefetch {
 public:
  /// Steps of a tile of vectors between two calls of some().
  static constexpr int64_t kPiece = 128;
  /// @param range,k rows and k of the panel; none are asked for if there are no rows
  /// @param times how often some() is called, at least
  Prefetch(const Factor& f, Range range, Range k, int64_t times) {
    if (range.size() <= 0 || k.size() <= 0) return;
    const bool along_k = f.stride_k == 1;
    const Range runs = along_k ? range : k, run = along_k ? k : range;
    stride_ = (along_k ? f.stride_i : f.stride_k) * size_of(f.dtype);
    bytes_ = run.size() * size_of(f.dtype);
    run_ = static_cast<const char*>(f.ptr) + runs.begin * stride_ + run.begin * size_of(f.dtype);
    left_ = runs.size() * ceil_div(bytes_, kLine);
    each_ = ceil_div(left_, std::max<int64_t>(1, times));
  }
  HWY_INLINE void some() {
    for (int64_t n = std::min(each_, left_); n > 0; --n) {
      __builtin_prefetch(run_ + at_, 0, 2);  // into L2
      at_ += kLine;
      if (--left_ > 0 && at_ >= bytes_) at_ = 0, run_ += stride_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* run_ = nullptr;
  int64_t stride_ = 0, bytes_ = 0, at_ = 0, left_ = 0, each_ = 0;
};

}  // namespace ladder
