// Sums of products with few rows, where a matrix is read once, in place: the weights of a linear
// layer, or the keys of a cache, when a text grows by a token (chapter 31).
//
// A lane is a row of the matrix, so each lane adds its own products, k ascending. The rows lie
// apart in memory. Four columns of kLanes rows are transposed in registers on their way to the
// sums. To pack them first, as gemm does for many rows, would write and read the matrix once more.
#pragma once

#include <array>

#include "kernels/cpu/simd.h"
#include "kernels/tree.h"

namespace ladder {

/// The most rows whose sums stay in registers, beside a square of the matrix.
constexpr int64_t kMostFewRows = 8;

/// kLanes neighboring rows of a matrix.
struct WholeLanes {
  const float* first;
  int64_t stride;

  HWY_INLINE const float* operator[](int64_t row) const { return first + row * stride; }
  /// Asks for these columns of the next rows, into L2: the processor does not foresee that a row
  /// ends and another goes on. Asks for the next columns of these rows, into L1: the products of
  /// three squares fill the processor's window, so that it does not look further ahead by itself.
  HWY_INLINE void ask_for_next(int64_t column) const {
    constexpr int64_t kAhead = 64;
    for (int64_t row = 0; row < kLanes; ++row) {
      __builtin_prefetch(first + row * stride + column + kAhead);
      __builtin_prefetch(first + (row + kLanes) * stride + column, 0, 2);
    }
  }
};

/// The last rows of a matrix. Lanes past the end repeat the last row.
struct LastLanes {
  std::array<const float*, kLanes> rows;

  LastLanes(const float* first, int64_t stride, int64_t count) {
    for (int64_t i = 0; i < kLanes; ++i)
      rows[static_cast<size_t>(i)] = first + std::min(i, count - 1) * stride;
  }
  HWY_INLINE const float* operator[](int64_t row) const { return rows[static_cast<size_t>(row)]; }
  static void ask_for_next(int64_t /*column*/) {}
};

/// Four columns of every fourth row, from `row` on: each block of four lanes is a row.
template <class D, class Rows>
HWY_INLINE hn::Vec<D> every_fourth(D d, const Rows& rows, int64_t row, int64_t column) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, rows[row] + column);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kRows = hn::MaxLanes(half);
    return hn::Combine(d, every_fourth(half, rows, row + kRows, column),
                       every_fourth(half, rows, row, column));
  }
}

/// Turns four such vectors, of rows 0 to 3, into four columns of kLanes rows.
HWY_INLINE Vecs<4> columns_of(const Vecs<4>& rows) {
  const hn::RepartitionToWide<Lanes> pairs;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(kVec, rows[0], rows[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(kVec, rows[2], rows[3]));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(kVec, rows[0], rows[1]));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(kVec, rows[2], rows[3]));
  return {hn::BitCast(kVec, hn::InterleaveLower(pairs, low01, low23)),
          hn::BitCast(kVec, hn::InterleaveUpper(pairs, low01, low23)),
          hn::BitCast(kVec, hn::InterleaveLower(pairs, high01, high23)),
          hn::BitCast(kVec, hn::InterleaveUpper(pairs, high01, high23))};
}

/// sums[m] += sum over k of a[m,k] b[lane,k], by fused multiply-adds, k ascending.
template <size_t M, class Rows>
HWY_INLINE void add_products(Vecs<M>& sums, const float* a, int64_t a_stride, const Rows& b,
                             Range k) {
  constexpr size_t kFours = kLanes / 4;
  const auto add = [&](Vec column, int64_t at) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (size_t m = 0; m < M; ++m)
      sums[m] = hn::MulAdd(broadcast(a[static_cast<int64_t>(m) * a_stride + at]), column, sums[m]);
  };
  int64_t at = k.begin;
  for (; at + kLanes <= k.end; at += kLanes) {
    b.ask_for_next(at);
    // All of a row's columns at once: rows that lie a multiple of 4 KiB apart push each other out
    // of L1.
    std::array<Vecs<4>, kFours> square;
#pragma GCC unroll 4
    for (size_t row = 0; row < 4; ++row)
#pragma GCC unroll 4
      for (size_t four = 0; four < kFours; ++four)
        square[four][row] =
            every_fourth(kVec, b, static_cast<int64_t>(row), at + 4 * static_cast<int64_t>(four));
#pragma GCC unroll 4
    for (size_t four = 0; four < kFours; ++four) {
      const Vecs<4> columns = columns_of(square[four]);
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) add(columns[i], at + static_cast<int64_t>(4 * four + i));
    }
  }
  for (; at < k.end; ++at) {
    std::array<float, kLanes> column;
    for (int64_t row = 0; row < kLanes; ++row) column[static_cast<size_t>(row)] = b[row][at];
    add(load(column.data()), at);
  }
}

/// Calls f(first, count, rows) for the rows of b (N,..) in [begin, end), kLanes at a time.
template <class F>
HWY_INLINE void for_lane_rows(const float* b, int64_t stride, Range range, F&& f) {
  int64_t n = range.begin;
  for (; n + kLanes <= range.end; n += kLanes) f(n, kLanes, WholeLanes{b + n * stride, stride});
  if (n < range.end) f(n, range.end - n, LastLanes(b + n * stride, stride, range.end - n));
}

/// Calls f(std::integral_constant<size_t, M>) for a number of rows from 1 to kMostFewRows.
template <class F>
void with_few_rows(int64_t rows, F&& f) {
  switch (rows) {
    case 1: return f(std::integral_constant<size_t, 1>{});
    case 2: return f(std::integral_constant<size_t, 2>{});
    case 3: return f(std::integral_constant<size_t, 3>{});
    case 4: return f(std::integral_constant<size_t, 4>{});
    case 5: return f(std::integral_constant<size_t, 5>{});
    case 6: return f(std::integral_constant<size_t, 6>{});
    case 7: return f(std::integral_constant<size_t, 7>{});
    default: return f(std::integral_constant<size_t, 8>{});
  }
}

}  // namespace ladder
