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

/// Rows of a matrix whose columns are contiguous: one lane of a vector each.
template <class T>
using RowPointers = std::array<const T*, kLanes>;

/// Four words at `col` of each row `first`, `first` + 4, ...: block j of the vector is of row
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

/// Whether rows lie so far apart that the same columns of all of them share one place in L1, which
/// holds fewer than a panel has: what is asked for early is gone before it is read.
inline bool rows_collide(const Factor& f) { return f.stride_i * size_of(f.dtype) % 4096 == 0; }

/// Asks for the lines in which columns from `col` on lie, in four of the rows: as transpose4 goes
/// on by four columns, all rows have their turn before the next line begins.
template <class T>
HWY_INLINE void ask_for_columns(const RowPointers<T>& rows, int64_t col) {
  for (int64_t i = 0; i < 4; ++i)
    __builtin_prefetch(rows[static_cast<size_t>((col + i) % kLanes)] + col);
}

/// One panel of rows [i, i + W) where k is contiguous. Rows past the end repeat the last one:
/// what is computed from them is never written.
template <int64_t W, class T, int64_t Step = 1>
HWY_INLINE void pack_transposed(float* out, const Factor& f, int64_t i, int64_t end, Range k) {
  using Word = Unit<Step, T>;
  constexpr int64_t kLater = 64;  // words from asking to reading
  const bool collide = rows_collide(f);
  const int64_t full = k.size() / Step;
  for (int64_t lane = 0; lane < W; lane += kLanes) {
    const int64_t used = std::min(kLanes, W - lane);
    RowPointers<Word> rows;
    for (int64_t row = 0; row < kLanes; ++row) {
      const T* begin =
          static_cast<const T*>(f.ptr) + std::min(i + lane + row, end - 1) * f.stride_i + k.begin;
      rows[static_cast<size_t>(row)] = reinterpret_cast<const Word*>(begin);
    }
    float* to = out + lane;
    int64_t col = 0;
    // What a store writes too much (see panel_size), the next one overwrites.
    for (; col + 4 <= full; col += 4) {
      if (!collide) ask_for_columns(rows, col + kLater);
      transpose4(to + col * W, W, rows, col);
    }
    for (; col < full; ++col)
      for (int64_t row = 0; row < used; ++row)
        to[col * W + row] = value_of(rows[static_cast<size_t>(row)][col]);
    if (full * Step < k.size())  // one left over: its partner is zero
      for (int64_t row = 0; row < used; ++row)
        to[full * W + row] =
            value_of(*reinterpret_cast<const T*>(rows[static_cast<size_t>(row)] + full));
  }
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
/// rows, in each segment after segment.
template <int64_t W, int64_t Step>
void pack(float* out, const Factor& f, Range range, int64_t end, const Chunk& chunk) {
  const int64_t size = panel_size(W, chunk.steps);
  if (chunk.gapless) return pack<W, Step>(out, size, f, range, end, chunk.k);
  for (int s = 0; s < chunk.count; ++s) {
    const Segment& segment = chunk.segments[static_cast<size_t>(s)];
    pack<W, Step>(out, size, f, range, end, {segment.begin, segment.end});
    out += segment.steps * W;
  }
}

}  // namespace ladder
