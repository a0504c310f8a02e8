// Panels of a matrix, as the tiles of the product read them: for each k, W neighbouring rows.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"
#include "kernels/tree.h"

namespace ladder {

/// Floats from one panel of W rows to the next: a vector more than it holds, because W need not
/// fill a vector and what a store writes too much must not reach the next panel.
constexpr int64_t panel_size(int64_t W, int64_t depth) { return W * depth + kLanes; }

/// Rows of a matrix whose columns are contiguous: one lane of a vector each.
template <class T>
using RowPointers = std::array<const T*, kLanes>;

/// Four floats at `col` of each row `first`, `first` + 4, ...: block j of the vector is of row
/// first + 4 j.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_blocks(D d, const RowPointers<T>& rows, size_t first, int64_t col) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return load(d, rows[first] + col);
  } else {
    const hn::Half<D> half;
    const auto low = load_blocks(half, rows, first, col);
    return hn::Combine(d, load_blocks(half, rows, first + hn::MaxLanes(half), col), low);
  }
}

/// Transposes columns [col, col + 4) of the rows: column j goes to out + j * stride.
/// Each block of a vector is transposed by itself; load_blocks has put the rows in order.
template <class T>
HWY_INLINE void transpose4(float* out, int64_t stride, const RowPointers<T>& rows, int64_t col) {
  const hn::RepartitionToWide<Lanes> pairs;
  const Vec r0 = load_blocks(kVec, rows, 0, col);
  const Vec r1 = load_blocks(kVec, rows, 1, col);
  const Vec r2 = load_blocks(kVec, rows, 2, col);
  const Vec r3 = load_blocks(kVec, rows, 3, col);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(kVec, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(kVec, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(kVec, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(kVec, r2, r3));
  store(hn::BitCast(kVec, hn::InterleaveLower(pairs, low01, low23)), out);
  store(hn::BitCast(kVec, hn::InterleaveUpper(pairs, low01, low23)), out + stride);
  store(hn::BitCast(kVec, hn::InterleaveLower(pairs, high01, high23)), out + 2 * stride);
  store(hn::BitCast(kVec, hn::InterleaveUpper(pairs, high01, high23)), out + 3 * stride);
}

/// One panel of rows [i, i + W) where k is contiguous. Rows past the end repeat the last one:
/// what is computed from them is never written.
template <int64_t W, class T>
HWY_INLINE void pack_transposed(float* out, const Factor& f, int64_t i, int64_t end, Range k) {
  for (int64_t lane = 0; lane < W; lane += kLanes) {
    RowPointers<T> rows;
    for (int64_t row = 0; row < kLanes; ++row)
      rows[static_cast<size_t>(row)] =
          static_cast<const T*>(f.ptr) + std::min(i + lane + row, end - 1) * f.stride_i + k.begin;
    float* to = out + lane;
    int64_t col = 0;
    // What a store writes too much (see panel_size), the next one overwrites.
    for (; col + 4 <= k.size(); col += 4) transpose4(to + col * W, W, rows, col);
    for (; col < k.size(); ++col)
      for (int64_t row = 0; row < std::min(kLanes, W - lane); ++row)
        to[col * W + row] = value_of(rows[static_cast<size_t>(row)][col]);
  }
}

/// W neighbouring rows where rows are contiguous, for `count` values of k: copies.
template <int64_t W, class T, class Io>
HWY_INLINE void copy_run(float* out, const T* from, int64_t stride, int64_t count, Io io) {
  for (int64_t col = 0; col < count; ++col) store(io.load(from + col * stride), out + col * W);
}

/// Panels of rows `range` where rows are contiguous: a few k at a time, so that both sides are
/// read and written in runs.
template <int64_t W, class T>
HWY_INLINE void pack_copied(float* out, const Factor& f, Range range, int64_t end, Range k) {
  constexpr int64_t kRun = 8;
  for (int64_t first = k.begin; first < k.end; first += kRun) {
    const int64_t count = std::min(kRun, k.end - first);
    float* panel = out + (first - k.begin) * W;
    for (int64_t i = range.begin; i < range.end; i += W, panel += panel_size(W, k.size()))
      for (int64_t lane = 0; lane < W; lane += kLanes) {
        const T* from = static_cast<const T*>(f.ptr) + first * f.stride_k + i + lane;
        const int64_t there = end - i - lane;
        if (there >= kLanes)
          copy_run<W>(panel + lane, from, f.stride_k, count, Whole{});
        else
          copy_run<W>(panel + lane, from, f.stride_k, count, Part(std::max<int64_t>(0, there)));
      }
  }
}

template <int64_t W, class T>
void pack_as(float* out, const Factor& f, Range range, int64_t end, Range k) {
  if (f.stride_k != 1) return pack_copied<W, T>(out, f, range, end, k);
  for (int64_t i = range.begin; i < range.end; i += W, out += panel_size(W, k.size()))
    pack_transposed<W, T>(out, f, i, end, k);
}

/// Packs rows `range` of f, which has `end` rows, for k in `k`: panel after panel of W rows.
template <int64_t W>
void pack(float* out, const Factor& f, Range range, int64_t end, Range k) {
  switch (f.dtype) {
    case Dtype::BF16: return pack_as<W, Bf16>(out, f, range, end, k);
    case Dtype::F16: return pack_as<W, F16>(out, f, range, end, k);
    case Dtype::E4M3: return pack_as<W, E4m3>(out, f, range, end, k);
    case Dtype::E5M2: return pack_as<W, E5m2>(out, f, range, end, k);
    default: return pack_as<W, float>(out, f, range, end, k);
  }
}

}  // namespace ladder
