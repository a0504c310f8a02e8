// Transposing: rows of a matrix in memory become columns of words. A word is a float, or two BF16
// of neighboring columns, the earlier one in the upper half.
#pragma once

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/cpu/pairs.h"
#include "kernels/cpu/simd.h"
#include "kernels/tree.h"

namespace ladder {

/// What one word is made of in memory: one T, or a pair of them.
template <int64_t Step, class T>
using Unit = std::conditional_t<Step == 1, T, Pair<T>>;

/// Stores each block of four lanes of v; blocks go `stride` words apart.
template <class D>
HWY_INLINE void store_blocks(D d, hn::Vec<D> v, float* out, int64_t stride) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    hn::StoreU(v, d, out);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kBlocks = hn::MaxLanes(half) / 4;
    store_blocks(half, hn::LowerHalf(half, v), out, stride);
    store_blocks(half, hn::UpperHalf(half, v), out + kBlocks * stride, stride);
  }
}

/// Four rows of a matrix. The columns of a row are contiguous.
template <class T>
using FourRows = std::array<const T*, 4>;

/// Transposes one vector of columns from `col` on. Column j goes to out + j * stride. Each row is
/// read one line at a time, so it does not matter how far apart rows lie.
template <class T>
HWY_INLINE void transpose(float* out, int64_t stride, const FourRows<T>& rows, int64_t col) {
  const hn::RepartitionToWide<Lanes> pairs;
  // Block i of each vector holds columns 4 i to 4 i + 3, and is transposed by itself.
  const Vec r0 = load(kVec, rows[0] + col), r1 = load(kVec, rows[1] + col);
  const Vec r2 = load(kVec, rows[2] + col), r3 = load(kVec, rows[3] + col);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(kVec, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(kVec, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(kVec, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(kVec, r2, r3));
  const auto put = [&](int64_t j, auto columns) {
    store_blocks(kVec, hn::BitCast(kVec, columns), out + j * stride, 4 * stride);
  };
  put(0, hn::InterleaveLower(pairs, low01, low23));
  put(1, hn::InterleaveUpper(pairs, low01, low23));
  put(2, hn::InterleaveLower(pairs, high01, high23));
  put(3, hn::InterleaveUpper(pairs, high01, high23));
}

/// Packs W rows from row i on: each step of k becomes a row of W words. Rows from `end` on repeat
/// the last one; nothing that is computed from them is written. Up to a vector behind the panel is
/// overwritten.
template <int64_t W, class T, int64_t Step = 1>
HWY_INLINE void pack_transposed(float* out, const T* x, int64_t stride, int64_t i, int64_t end,
                                Range k) {
  using Word = Unit<Step, T>;
  constexpr int64_t kLater = 64;  // words between asking for memory and reading it
  constexpr int64_t kGroups = ceil_div(W, 4);
  const int64_t full = k.size() / Step;
  std::array<FourRows<Word>, kGroups> rows;
  for (int64_t row = 0; row < 4 * kGroups; ++row) {
    const T* begin = x + std::min(i + row, end - 1) * stride + k.begin;
    rows[static_cast<size_t>(row / 4)][static_cast<size_t>(row % 4)] =
        reinterpret_cast<const Word*>(begin);
  }
  const auto at = [&](int64_t row) {
    return rows[static_cast<size_t>(row / 4)][static_cast<size_t>(row % 4)];
  };
  int64_t col = 0;
  for (; col + kLanes <= full; col += kLanes)
    // The last rows come first: the others overwrite what these store too much.
    for (int64_t group = kGroups - 1; group >= 0; --group) {
      const auto& four = rows[static_cast<size_t>(group)];
      // Into L2: in L1, rows that lie a multiple of 4 KiB apart would push each other out.
      for (const Word* row : four) __builtin_prefetch(row + col + kLater, 0, 2);
      transpose(out + col * W + 4 * group, W, four, col);
    }
  for (; col < full; ++col)
    for (int64_t row = 0; row < W; ++row) out[col * W + row] = value_of(at(row)[col]);
  if (full * Step < k.size())  // a value without a partner: its partner is zero
    for (int64_t row = 0; row < W; ++row)
      out[full * W + row] = value_of(*reinterpret_cast<const T*>(at(row) + full));
}

}  // namespace ladder
