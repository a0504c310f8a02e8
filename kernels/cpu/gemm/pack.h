// Panels of a matrix, in the order in which tiles of the product read them: for each step of k, one
// word of each of W neighboring rows. A word is a float, or two BF16 of neighboring k, the earlier
// one in its upper half.
#pragma once

#include <algorithm>

#include "kernels/cpu/gemm/depth.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/transpose.h"

namespace ladder {

/// Words from one panel of W rows to the next. It is one vector more than a panel holds: W need not
/// fill a vector, and what a store writes too much must not reach the next panel.
constexpr int64_t panel_size(int64_t W, int64_t steps) { return W * steps + kLanes; }

/// Steps that are copied to one panel before the next panel has its turn. So both sides are read
/// and written in runs.
constexpr int64_t kRun = 8;

/// Copies `count` values of k of one vector of rows to a panel of W rows. The rows are neighbors in
/// memory; values of k lie `stride` apart. Asks for the memory of the next run.
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

/// Packs panels of rows `range` if rows are neighbors in memory (stride_i is 1).
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

/// Packs panels of rows `range` of f, which has `end` rows, for k in `k`. Panels begin `size` words
/// apart.
template <int64_t W, int64_t Step, class T>
void pack_as(float* out, int64_t size, const Factor& f, Range range, int64_t end, Range k) {
  if (f.stride_k != 1) return pack_copied<W, Step, T>(out, size, f, range, end, k);
  for (int64_t i = range.begin; i < range.end; i += W, out += size)
    pack_transposed<W, T, Step>(out, static_cast<const T*>(f.ptr), f.stride_i, i, end, k);
}

/// The same for the dtype of f.
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

/// Packs rows `range` of f, which has `end` rows, for the k of a slab: one panel of W rows after
/// the other, and in each panel one run after the other.
template <int64_t W, int64_t Step>
void pack(float* out, const Factor& f, Range range, int64_t end, const Slab& slab) {
  const int64_t size = panel_size(W, slab.steps);
  for (const KRun& run : slab.k()) {
    pack<W, Step>(out, size, f, range, end, {run.begin, run.end});
    out += ceil_div(run.size(), Step) * W;
  }
}

}  // namespace ladder
