// Panels of a matrix, as the tiles of the product read them: for each k, W neighbouring rows.
#pragma once

#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd.h"
#include "kernels/tree.h"

namespace ladder {

/// Floats from one panel of W rows to the next: a vector more than it holds, because W need not
/// fill a vector and what a store writes too much must not reach the next panel.
constexpr int64_t panel_size(int64_t W, int64_t depth) { return W * depth + kLanes; }

/// Four floats each of rows 0, 4, 8, ... of those at `row(i)`: block j of the vector is row 4 j.
template <class D, class Row>
HWY_INLINE hn::Vec<D> load_blocks(D d, const Row& row, int64_t first) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, row(first));
  } else {
    const hn::Half<D> half;
    const auto low = load_blocks(half, row, first);
    const auto high = load_blocks(half, row, first + static_cast<int64_t>(hn::MaxLanes(half)));
    return hn::Combine(d, high, low);
  }
}

/// Transposes kLanes rows x 4 columns: vector j of the result holds column j.
/// Each block of a vector is transposed by itself; load_blocks has put the rows in order.
template <class Row, class Out>
HWY_INLINE void transpose4(const Row& row, Out&& out) {
  const hn::RepartitionToWide<Lanes> pairs;
  const Vec r0 = load_blocks(kVec, row, 0);
  const Vec r1 = load_blocks(kVec, row, 1);
  const Vec r2 = load_blocks(kVec, row, 2);
  const Vec r3 = load_blocks(kVec, row, 3);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(kVec, r0, r1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(kVec, r2, r3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(kVec, r0, r1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(kVec, r2, r3));
  out(0, hn::BitCast(kVec, hn::InterleaveLower(pairs, low01, low23)));
  out(1, hn::BitCast(kVec, hn::InterleaveUpper(pairs, low01, low23)));
  out(2, hn::BitCast(kVec, hn::InterleaveLower(pairs, high01, high23)));
  out(3, hn::BitCast(kVec, hn::InterleaveUpper(pairs, high01, high23)));
}

/// One panel of rows [i, i + W) where k is contiguous. Rows past the end repeat the last one:
/// what is computed from them is never written.
template <int64_t W>
HWY_INLINE void pack_transposed(float* out, const Factor& f, int64_t i, int64_t end, Range k) {
  for (int64_t lane = 0; lane < W; lane += kLanes) {
    const auto at = [&](int64_t row, int64_t col) {
      return f.ptr + std::min(i + lane + row, end - 1) * f.stride_i + col;
    };
    int64_t col = k.begin;
    for (; col + 4 <= k.end; col += 4) {
      float* to = out + (col - k.begin) * W + lane;
      // What a store writes too much (see panel_size), the next one overwrites.
      transpose4([&](int64_t row) { return at(row, col); },
                 [&](int64_t j, Vec v) { store(v, to + j * W); });
    }
    for (; col < k.end; ++col)
      for (int64_t row = 0; row < std::min(kLanes, W - lane); ++row)
        out[(col - k.begin) * W + lane + row] = *at(row, col);
  }
}

/// Panels of rows [range) where rows are contiguous: copies, a few k at a time, so that both
/// sides are read and written in runs.
template <int64_t W>
HWY_INLINE void pack_copied(float* out, const Factor& f, Range range, int64_t end, Range k) {
  constexpr int64_t kRun = 8;
  for (int64_t first = k.begin; first < k.end; first += kRun) {
    float* panel = out;
    for (int64_t i = range.begin; i < range.end; i += W, panel += panel_size(W, k.size())) {
      for (int64_t lane = 0; lane < W; lane += kLanes) {
        const Part part(std::clamp<int64_t>(end - i - lane, 0, std::min(kLanes, W - lane)));
        for (int64_t col = first; col < std::min(k.end, first + kRun); ++col)
          store(part.load(f.ptr + col * f.stride_k + i + lane), panel + (col - k.begin) * W + lane);
      }
    }
  }
}

/// Packs rows `range` of f, which has `end` rows, for k in `k`: panel after panel of W rows.
template <int64_t W>
void pack(float* out, const Factor& f, Range range, int64_t end, Range k) {
  if (f.stride_k != 1) return pack_copied<W>(out, f, range, end, k);
  for (int64_t i = range.begin; i < range.end; i += W, out += panel_size(W, k.size()))
    pack_transposed<W>(out, f, i, end, k);
}

}  // namespace ladder
