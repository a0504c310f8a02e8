// Panels of a matrix, as the tiles of the product read them: for each step of k, one word of each
// of W neighbouring rows. A word is a float, or two BF16 of neighbouring k, the earlier one in its
// upper half.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_cut.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/simd.h"

namespace ladder {

/// Words from one panel of W rows to the next: a vector more than it holds, because W need not
/// fill a vector and what a store writes too much must not reach the next panel.
constexpr int64_t panel_size(int64_t W, int64_t steps) { return W * steps + kLanes; }

/// What lies in memory for one word: a T, or two.
template <int64_t Step, class T>
using Unit = std::conditional_t<Step == 1, T, Pair<T>>;

/// Stores the blocks of four lanes of v, `stride` words apart.
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

/// Four rows of a matrix whose columns are contiguous.
template <class T>
using FourRows = std::array<const T*, 4>;

/// Transposes a vector of columns from `col` on: column j goes to out + j * stride. Each row is
/// read a line at a time, so it does not matter how far apart rows lie.
template <class T>
HWY_INLINE void transpose(float* out, int64_t stride, const FourRows<T>& rows, int64_t col) {
  const hn::RepartitionToWide<Lanes> pairs;
  // Block i of each vector has columns 4 i to 4 i + 3, and is transposed by itself.
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

/// One panel of rows [i, i + W) where k is contiguous. Rows past the end repeat the last one:
/// what is computed from them is never written.
template <int64_t W, class T, int64_t Step = 1>
HWY_INLINE void pack_transposed(float* out, const Factor& f, int64_t i, int64_t end, Range k) {
  using Word = Unit<Step, T>;
  constexpr int64_t kLater = 64;  // words from asking to reading
  constexpr int64_t kGroups = ceil_div(W, 4);
  const int64_t full = k.size() / Step;
  std::array<FourRows<Word>, kGroups> rows;
  for (int64_t row = 0; row < 4 * kGroups; ++row) {
    const T* begin =
        static_cast<const T*>(f.ptr) + std::min(i + row, end - 1) * f.stride_i + k.begin;
    rows[static_cast<size_t>(row / 4)][static_cast<size_t>(row % 4)] =
        reinterpret_cast<const Word*>(begin);
  }
  const auto at = [&](int64_t row) {
    return rows[static_cast<size_t>(row / 4)][static_cast<size_t>(row % 4)];
  };
  int64_t col = 0;
  for (; col + kLanes <= full; col += kLanes)
    // The last rows first: what they store too much (see panel_size), the others overwrite.
    for (int64_t group = kGroups - 1; group >= 0; --group) {
      const auto& four = rows[static_cast<size_t>(group)];
      // Into L2: in L1 rows that lie a multiple of 4 KiB apart would push out one another.
      for (const Word* row : four) __builtin_prefetch(row + col + kLater, 0, 2);
      transpose(out + col * W + 4 * group, W, four, col);
    }
  for (; col < full; ++col)
    for (int64_t row = 0; row < W; ++row) out[col * W + row] = value_of(at(row)[col]);
  if (full * Step < k.size())  // one left over: its partner is zero
    for (int64_t row = 0; row < W; ++row)
      out[full * W + row] = value_of(*reinterpret_cast<const T*>(at(row) + full));
}

/// Steps that are copied to one panel before the next has its turn, so that both sides are read and
/// written in runs.
constexpr int64_t kRun = 8;

/// W neighbouring rows where rows are contiguous, for `count` values of k, `stride` apart. The same
/// of the next run is asked for.
template <int64_t W, int64_t Step, class T, class Io>
HWY_INLINE void copy_run(float* out, const T* from, int64_t stride, int64_t count, Io io) {
  int64_t k = 0;
  for (; k + Step <= count; k += Step, out += W) {
    for (int64_t i = k; i < k + Step; ++i) __builtin_prefetch(from + (i + kRun * Step) * stride);
    Vec word = io.load(from + k * stride);
    if constexpr (Step == 2) word = join_pairs(kVec, word, io.load(from + (k + 1) * stride));
    store(word, out);
  }
  if (k < count) store(io.load(from + k * stride), out);  // its partner is zero
}

/// Panels of rows `range` where rows are contiguous.
template <int64_t W, int64_t Step, class T>
HWY_INLINE void pack_copied(float* out, int64_t size, const Factor& f, Range range, int64_t end,
                            Range k) {
  for (int64_t first = k.begin; first < k.end; first += kRun * Step) {
    const int64_t count = std::min(kRun * Step, k.end - first);
    float* panel = out + (first - k.begin) / Step * W;
    for (int64_t i = range.begin; i < range.end; i += W, panel += size)
      for (int64_t lane = 0; lane < W; lane += kLanes) {
        const T* from = static_cast<const T*>(f.ptr) + first * f.stride_k + i + lane;
        const int64_t there = end - i - lane;
        if (there >= kLanes)
          copy_run<W, Step>(panel + lane, from, f.stride_k, count, Whole{});
        else
          copy_run<W, Step>(panel + lane, from, f.stride_k, count,
                            Part(std::max<int64_t>(0, there)));
      }
  }
}

/// Panels of rows `range` for k in `k`: `size` words from one to the next.
template <int64_t W, int64_t Step, class T>
void pack_as(float* out, int64_t size, const Factor& f, Range range, int64_t end, Range k) {
  if (f.stride_k != 1) return pack_copied<W, Step, T>(out, size, f, range, end, k);
  for (int64_t i = range.begin; i < range.end; i += W, out += size)
    pack_transposed<W, T, Step>(out, f, i, end, k);
}

template <int64_t W, int64_t Step>
void pack(float* out, int64_t size, const Factor& f, Range range, int64_t end, Range k) {
  switch (f.dtype) {
    case Dtype::BF16: return pack_as<W, Step, Bf16>(out, size, f, range, end, k);
    case Dtype::E4M3: return pack_as<W, Step, E4m3>(out, size, f, range, end, k);
    case Dtype::E5M2: return pack_as<W, Step, E5m2>(out, size, f, range, end, k);
    default: break;
  }
  if constexpr (Step == 1) {
    if (f.dtype == Dtype::F16) return pack_as<W, 1, F16>(out, size, f, range, end, k);
    return pack_as<W, 1, float>(out, size, f, range, end, k);
  }
}

/// Packs rows `range` of f, which has `end` rows, for the k of a chunk: panel after panel of W
/// rows, in each run after run.
template <int64_t W, int64_t Step>
void pack(float* out, const Factor& f, Range range, int64_t end, const Chunk& chunk) {
  const int64_t size = panel_size(W, chunk.steps);
  for (const Run& run : chunk.k()) {
    pack<W, Step>(out, size, f, range, end, {run.begin, run.end});
    out += ceil_div(run.size(), Step) * W;
  }
}

}  // namespace ladder
