// What a tile does beside its products, for later tiles or for its own end: a little at a time, as
// much at once would keep its own loads waiting.
#pragma once

#include <algorithm>

#include "kernels/cpu/gemm_registers.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/pairs.h"

namespace ladder {

/// The next panel of B, where its rows are neighbours in memory: it is packed a few steps at a
/// time, while the tiles before it wait for their products anyway.
template <int64_t Step, class T>
class Packing {
 public:
  /// Steps of a tile between two calls of some(): with fewer the loops cost more, with more they
  /// come in bursts, which slow the tile down.
  static constexpr int64_t kPiece = kLanes == 16 ? 48 : 128;
  /// @param times how often some() is called
  Packing(float* panel, const T* from, int64_t stride, int64_t steps, int64_t times)
      : panel_(panel),
        from_(from),
        stride_(stride),
        left_(steps),
        each_((steps + times - 1) / times) {}

  HWY_INLINE void some() {
    for (int64_t n = std::min(each_, left_); n > 0; --n) {
      for (int64_t k = 0; k < Step; ++k) {
        const T* later = from_ + (kLater * Step + k) * stride_;
        for (int64_t i = 0; i < kNr; i += kLine) __builtin_prefetch(later + i);
      }
      store(word(from_), panel_);
      store(word(from_ + kLanes), panel_ + kLanes);
      panel_ += kNr;
      from_ += Step * stride_;
      --left_;
    }
  }

 private:
  static constexpr int64_t kLater = 4;  ///< steps from asking for memory to reading it
  static constexpr int64_t kLine = 64 / sizeof(T);
  HWY_INLINE Vec word(const T* at) const {
    const Vec first = load(at);
    if constexpr (Step == 1) return first;
    return join_pairs(kVec, first, load(at + stride_));
  }

  float* panel_;
  const T* from_;
  int64_t stride_, left_, each_;
};

/// All of it, each time Next::kPiece steps are done. Next packs the next panel of B or asks for its
/// memory.
template <class Next>
struct Beside {
  Next& next;
  Prefetch c;  ///< where the tiles that end now are written
  HWY_INLINE void some() {
    next.some();
    if constexpr (kLanes == 16) c.some();  // with AVX2 it costs more than it gains
  }
};

}  // namespace ladder
