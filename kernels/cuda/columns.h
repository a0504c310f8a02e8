// Sums down the columns of a matrix, for the gradients of biases and layer norms.
//
// The rows fall into parts by leaf() of kernels/tree.h. A block sums 32 W columns of one part, its
// warps every eighth row each, and writes a row of partial sums. Then the parts are joined as a
// tree; with ctx.token_leaves parts a sequence it is the one of ref: over leaves, then over
// sequences.
#pragma once

#include <algorithm>

#include "kernels/cuda/scratch.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/kernels.h"
#include "kernels/tree.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// Where the sums go: Count arrays of C columns.
template <int Count>
struct Columns {
  float* to[Count];
};

/// put(i, c, sum) for term i of Count, summed over `rows`, and for each of the 32 W columns from
/// `first` on that exist. One block; its warps take every eighth row, as `terms` adds it:
///     void add(Floats<W> (&sum)[Count], int64_t row, int64_t c) const
template <int Count, int W, class Terms, class Put>
static __device__ void sum_rows(const Terms& terms, Range rows, int64_t first, int64_t C, Put put) {
  constexpr int kWarps = kThreads / kWarp;
  constexpr int kColumns = kWarp * W;
  __shared__ float by_warp[kWarps][Count][kColumns];
  const int64_t c = first + lane_index() * W;
  Floats<W> sum[Count] = {};
  for (int64_t row = rows.begin + warp_index(); c < C && row < rows.end; row += kWarps)
    terms.add(sum, row, c);
  for (int i = 0; i < Count; ++i)
    for (int j = 0; j < W; ++j) by_warp[warp_index()][i][lane_index() * W + j] = sum[i].at[j];
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < Count * kColumns; at += kThreads) {
    const int i = at / kColumns, column = at % kColumns;
    float total = 0;
    for (int warp = 0; warp < kWarps; ++warp) total += by_warp[warp][i][column];
    if (first + column < C) put(i, first + column, total);
  }
  __syncthreads();  // so that the next call may write `by_warp`
}

/// partial (parts,Count,C) = the sums of each part of the rows.
template <int Count, int W, class Terms>
static __global__ void sum_parts(float* partial, Terms terms, int64_t rows, int64_t C) {
  const int64_t part = blockIdx.x, first = static_cast<int64_t>(blockIdx.y) * kWarp * W;
  sum_rows<Count, W>(
      terms, leaf(part, gridDim.x, rows), first, C,
      [=](int i, int64_t c, float sum) { partial[(part * Count + i) * C + c] = sum; });
}

/// Joins the parts, a pair of neighboring subtrees at a time, in place; a block for 32 columns.
template <int Count>
static __global__ void join_parts(Columns<Count> sums, float* partial, int64_t parts, int64_t C,
                                  Into into) {
  constexpr int kWarps = kThreads / kWarp;
  const int64_t columns = Count * C;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane_index();
  for (int64_t size = 1; size < parts; size *= 2) {
    for (int64_t left = 2 * size * warp_index(); left + size < parts; left += 2 * size * kWarps)
      if (column < columns)
        partial[left * columns + column] += partial[(left + size) * columns + column];
    __syncthreads();
  }
  if (warp_index() > 0 || column >= columns) return;
  float& sum = sums.to[column / C][column % C];
  sum = into == Into::Add ? sum + partial[column] : partial[column];
}

/// sums (Count, C) = the terms of all rows, in `parts` parts. No parts: 0.
template <int Count, int W, class Terms>
void sum_columns(const Ctx& ctx, const Columns<Count>& sums, Scratch& scratch, const Terms& terms,
                 int64_t rows, int64_t parts, int64_t C, Into into) {
  parts = std::max<int64_t>(parts, 1);
  float* partial = scratch.take<float>(parts * Count * C);
  // Parts along x, which alone has room for as many: there are several for each sequence.
  launch(ctx, sum_parts<Count, W, Terms>, {.x = parts, .y = ceil_div(C, kWarp * W)}, kThreads, 0,
         partial, terms, rows, C);
  launch(ctx, join_parts<Count>, {.x = ceil_div(Count * C, kWarp)}, kThreads, 0, sums, partial,
         parts, C, into);
}

}  // namespace ladder::LADDER_CUDA
