// Asks for the memory of a product (prefetches it) before it is needed.
#pragma once

#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/gemm/depth.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/tree.h"

namespace ladder {

/// Asks for the memory of a panel before it is packed, or of a tile of C before it is written. It
/// asks for a few lines at a time: many at once would wait for one another, and loads would wait
/// for them.
class Prefetch {
 public:
  /// Steps of a tile between two calls of some().
  static constexpr int64_t kPiece = 128;
  /// @param range,k rows and k of the panel; without rows, nothing is asked for
  /// @param times how often some() is called at least
  Prefetch(const Factor& f, Range range, std::span<const KRun> k, int64_t times) {
    if (range.size() <= 0 || k.empty()) return;
    const int64_t size = size_of(f.dtype);
    const KRun rows{range.begin, range.end}, all{k.front().begin, k.back().end};
    const bool along_k = f.stride_k == 1;  // then runs of k are neighbors
    const KRun line = along_k ? all : rows;
    base_ = static_cast<const char*>(f.ptr) + line.begin * size;
    bytes_ = line.size() * size;
    stride_ = (along_k ? f.stride_i : f.stride_k) * size;
    if (along_k) {
      enter(rows);
      left_ = rows.size();
    } else {
      later_ = k;
      enter_next();
      for (const KRun& run : k) left_ += run.size();
    }
    left_ *= ceil_div(bytes_, kLine);
    each_ = ceil_div(left_, std::max<int64_t>(1, times));
  }
  HWY_INLINE void some() {
    for (int64_t n = std::min(each_, left_); n > 0; --n) {
      __builtin_prefetch(line_ + at_, 0, 2);  // into L2
      at_ += kLine;
      if (--left_ == 0 || at_ < bytes_) continue;
      at_ = 0;
      line_ += stride_;
      if (--lines_ == 0) enter_next();
    }
  }

 private:
  static constexpr int64_t kLine = 64;

  void enter(KRun run) {
    line_ = base_ + run.begin * stride_;
    lines_ = run.size();
  }
  void enter_next() {
    enter(later_.front());
    later_ = later_.subspan(1);
  }

  const char *base_ = nullptr, *line_ = nullptr;
  int64_t stride_ = 0, bytes_ = 0, at_ = 0, left_ = 0, each_ = 0;
  int64_t lines_ = 0;            ///< of this run, from line_ on
  std::span<const KRun> later_;  ///< the runs after it
};

}  // namespace ladder
