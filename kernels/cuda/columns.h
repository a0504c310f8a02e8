// Sums down the columns of a matrix, for the gradients of biases and layer norms.
//
// The rows fall into the leaves of a vector (kernels/token_leaves.h). A block sums 32 W columns of
// one leaf, its warps every eighth row of a chunk each, and writes a row of partial sums. Then the
// leaves are joined as a tree: that of ref.
#pragma once

#include <algorithm>

#include "kernels/cuda/scratch.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/kernels.h"
#include "kernels/token_leaves.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// Where the sums go: Count arrays of C columns; those of a null array go nowhere.
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

/// partial (leaves,Count,C) = the sums of each leaf; 0 if there are no rows.
template <int Count, int W, class Terms>
static __global__ void sum_leaves(float* partial, Terms terms, VectorTree tree, int64_t C) {
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kWarp * W;
  const Fold rows = tree.B == 0 ? Fold{} : tree.rows(blockIdx.x);
  float* own = partial + static_cast<int64_t>(blockIdx.x) * Count * C;
  sum_rows<Count, W>(terms, rows.early, first, C,
                     [=](int i, int64_t c, float sum) { own[i * C + c] = sum; });
  sum_rows<Count, W>(terms, rows.late, first, C,
                     [=](int i, int64_t c, float sum) { own[i * C + c] += sum; });
}

/// Joins the leaves, a pair of neighboring subtrees at a time, in place; a block for 32 columns.
template <int Count>
static __global__ void join_leaves(Columns<Count> sums, float* partial, int64_t leaves, int64_t C,
                                   Into into) {
  constexpr int kWarps = kThreads / kWarp;
  const int64_t columns = Count * C;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane_index();
  for (int64_t size = 1; size < leaves; size *= 2) {
    for (int64_t left = 2 * size * warp_index(); left + size < leaves; left += 2 * size * kWarps)
      if (column < columns)
        partial[left * columns + column] += partial[(left + size) * columns + column];
    __syncthreads();
  }
  if (warp_index() > 0 || column >= columns) return;
  float* to = sums.to[column / C];
  if (to == nullptr) return;
  float& sum = to[column % C];
  sum = into == Into::Add ? sum + partial[column] : partial[column];
}

/// sums (Count, C) = the terms of all rows.
template <int Count, int W, class Terms>
void sum_columns(const Ctx& ctx, const Columns<Count>& sums, Scratch& scratch, const Terms& terms,
                 const VectorTree& tree, int64_t C, Into into) {
  const int64_t leaves = std::max<int64_t>(tree.leaves(), 1);
  float* partial = scratch.take<float>(leaves * Count * C);
  // Leaves along x, which alone has room for as many: there are several for each sequence.
  launch(ctx, sum_leaves<Count, W, Terms>, {.x = leaves, .y = ceil_div(C, kWarp * W)}, kThreads, 0,
         partial, terms, tree, C);
  launch(ctx, join_leaves<Count>, {.x = ceil_div(Count * C, kWarp)}, kThreads, 0, sums, partial,
         leaves, C, into);
}

}  // namespace ladder::LADDER_CUDA
