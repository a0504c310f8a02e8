// Sums along a row in 16 fixed lanes. Element i goes to lane i mod 16, ascending; then the lanes
// are joined as a tree. The 16 lanes are one vector of AVX-512, two of AVX2 or four of NEON, with
// the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/simd.h"

namespace ladder {

constexpr int64_t kSumLanes = 16;

/// Calls f(part, i, io) for each vector of [0, n). `part` says which vector of the 16 lanes it
/// belongs to.
template <class F>
HWY_INLINE void for_lanes(int64_t n, F&& f) {
  static_assert(kSumLanes % kLanes == 0);
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (int64_t part = 0; part < kSumLanes / kLanes; ++part) f(part, i + part * kLanes, Whole{});
  for (int64_t part = 0; i < n; ++part, i += kLanes) f(part, i, Part(std::min(kLanes, n - i)));
}

/// Joins the lanes of v as a tree: lane i with lane i + half, until one is left.
template <class D, class Join>
HWY_INLINE hn::TFromD<D> reduce_lanes(D d, hn::Vec<D> v, const Join& join) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return reduce_lanes(half, join(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), join);
  }
}

/// 16 lanes, each of which holds a sum or a maximum.
struct LaneAcc {
  std::array<Vec, kSumLanes / kLanes> part;

  explicit LaneAcc(Vec start = zero()) { part.fill(start); }
  Vec& operator[](int64_t i) { return part[static_cast<size_t>(i)]; }

  /// Joins lane i with lane i + 8, then with + 4, + 2, + 1.
  template <class Join>
  HWY_INLINE float reduce(const Join& join) const {
    auto rest = part;
    for (size_t half = rest.size() / 2; half > 0; half /= 2)
      for (size_t i = 0; i < half; ++i) rest[i] = join(rest[i], rest[i + half]);
    return reduce_lanes(kVec, rest[0], join);
  }
  HWY_INLINE float sum() const {
    return reduce([](auto a, auto b) { return hn::Add(a, b); });
  }
};

/// sum_i f(row, i, io) over [0, n), for each of N rows. f gives a vector of terms; its lanes past n
/// must be zero. An addition waits for the one before it in the same row, but not for other rows.
template <size_t N, class F>
HWY_INLINE std::array<float, N> lane_sums(int64_t n, F&& f) {
  std::array<LaneAcc, N> acc;
  for_lanes(n, [&](int64_t part, int64_t i, auto io) {
    for (size_t row = 0; row < N; ++row) acc[row][part] = hn::Add(acc[row][part], f(row, i, io));
  });
  std::array<float, N> sums;
  for (size_t row = 0; row < N; ++row) sums[row] = acc[row].sum();
  return sums;
}

/// sum_i f(i, io) over [0, n).
template <class F>
HWY_INLINE float lane_sum(int64_t n, F&& f) {
  return lane_sums<1>(n, [&](size_t, int64_t i, auto io) { return f(i, io); })[0];
}

/// The larger of each lane; NaN if either is NaN. (larger_lanes passes on only its second operand's
/// NaN.)
struct MaxOrNaN {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::IfThenElse(hn::Eq(a, a), larger_lanes(a, b), a);
  }
};

/// max_i x[i]; NaN if there is one.
template <class Real>
HWY_INLINE float lane_max(const Real* x, int64_t n) {
  const Vec lowest = broadcast(-INFINITY);
  LaneAcc acc(lowest);
  for_lanes(n, [&](int64_t part, int64_t i, auto io) {
    acc[part] = MaxOrNaN{}(acc[part], io.load_or(lowest, x + i));
  });
  return acc.reduce(MaxOrNaN{});
}

}  // namespace ladder
