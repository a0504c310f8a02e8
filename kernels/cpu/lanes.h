// Sums along a row in 16 fixed lanes: element i goes to lane i mod 16, ascending, and the lanes
// are joined as a tree. Two AVX2 vectors or one of AVX-512 hold the lanes: the bits are the same.
#pragma once

#include <array>

#include "kernels/cpu/simd.h"

namespace ladder {

constexpr int64_t kSumLanes = 16;

/// Calls f(part, i, io) for each vector of [0, n); `part` is the vector among the 16 lanes that
/// it belongs to.
template <class F>
HWY_INLINE void for_lanes(int64_t n, F&& f) {
  static_assert(kSumLanes % kLanes == 0);
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (int64_t part = 0; part < kSumLanes / kLanes; ++part) f(part, i + part * kLanes, Whole{});
  for (int64_t part = 0; i < n; ++part, i += kLanes) f(part, i, Part(std::min(kLanes, n - i)));
}

/// 16 lanes that sum or take the maximum.
struct LaneAcc {
  std::array<Vec, kSumLanes / kLanes> part;

  explicit LaneAcc(Vec start) { part.fill(start); }
  Vec& operator[](int64_t i) { return part[static_cast<size_t>(i)]; }

  /// join(lane i, lane i + 8), then + 4, + 2, + 1.
  template <class Join>
  float reduce(Join&& join) const {
    HWY_ALIGN float lane[kSumLanes];
    for (size_t i = 0; i < part.size(); ++i)
      hn::Store(part[i], kVec, lane + static_cast<int64_t>(i) * kLanes);
    for (int64_t half = kSumLanes / 2; half > 0; half /= 2)
      for (int64_t i = 0; i < half; ++i) lane[i] = join(lane[i], lane[i + half]);
    return lane[0];
  }
  float sum() const {
    return reduce([](float a, float b) { return a + b; });
  }
};

/// sum_i f(i, io) over [0, n), f a vector of terms; f's lanes past n must be zero.
template <class F>
HWY_INLINE float lane_sum(int64_t n, F&& f) {
  LaneAcc acc(zero());
  for_lanes(n, [&](int64_t part, int64_t i, auto io) { acc[part] = hn::Add(acc[part], f(i, io)); });
  return acc.sum();
}

/// max_i x[i]; NaN if there is one.
HWY_INLINE float lane_max(const float* x, int64_t n) {
  const Vec lowest = broadcast(-INFINITY);
  LaneAcc acc(lowest);
  for_lanes(n, [&](int64_t part, int64_t i, auto io) {
    const Vec v = io.load_or(lowest, x + i);
    // Max passes its second operand on where one is NaN; a NaN found stays by being larger.
    acc[part] = hn::IfThenElse(hn::Eq(acc[part], acc[part]), hn::Max(acc[part], v), acc[part]);
  });
  return acc.reduce([](float a, float b) { return a != a || a > b ? a : b; });
}

}  // namespace ladder
