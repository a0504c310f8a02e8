// Sums down the columns of a matrix, for the gradients of biases and layer norms.
//
// The rows, most often tokens, fall into leaves of two chunks each: those that
// kernels/token_leaves.h gives to a vector. A block sums 32 W columns of one leaf, W for each lane.
// Half of its warps take the leaf's first chunk, the other half the second; each of the four warps
// takes every fourth row. Then both chunks are added. A second kernel joins the leaves in the same
// tree as ref.
#pragma once

#include <algorithm>
#include <utility>

#include "kernels/cuda/scratch.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/kernels.h"
#include "kernels/token_leaves.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// Where the sums go: Count arrays of C columns. Sums of a null array are dropped.
template <int Count>
struct Columns {
  float* to[Count];
};

/// partial (leaves,Count,C) = the sums of each leaf, in C columns from `begin` on. One block for a
/// leaf and 32 W columns. Terms has a function that adds the terms of a row, columns [c, c + W):
///     void add(Floats<W> (&sum)[Count], int64_t row, int64_t c) const
template <int Count, int W, class Terms>
static __global__ void sum_leaves(float* partial, Terms terms, VectorTree tree, int64_t begin,
                                  int64_t C) {
  constexpr int kWarps = kThreads / kWarp, kOfChunk = kWarps / 2;
  constexpr int kColumns = kWarp * W;
  __shared__ float by_warp[kWarps][Count][kColumns];
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kColumns;
  const int64_t c = first + lane_index() * W;
  const Fold fold = tree.leaves() == 0 ? Fold{} : tree.rows(blockIdx.x);
  const Range rows = warp_index() < kOfChunk ? fold.early : fold.late;
  Floats<W> sum[Count];
  for (Floats<W>& of : sum)
    for (int j = 0; j < W; ++j) of.at[j] = -0.0F;
  if (c < C) {
#pragma unroll 4  // loads of four rows are in progress at once
    for (int64_t row = rows.begin + warp_index() % kOfChunk; row < rows.end; row += kOfChunk)
      terms.add(sum, row, begin + c);
  }
  for (int i = 0; i < Count; ++i)
    for (int j = 0; j < W; ++j) by_warp[warp_index()][i][lane_index() * W + j] = sum[i].at[j];
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < Count * kColumns; at += kThreads) {
    const int i = at / kColumns, column = at % kColumns;
    float chunk[2] = {-0.0F, -0.0F};
    for (int warp = 0; warp < kWarps; ++warp) chunk[warp / kOfChunk] += by_warp[warp][i][column];
    if (first + column < C)
      partial[(static_cast<int64_t>(blockIdx.x) * Count + i) * C + first + column] =
          chunk[0] + chunk[1];
  }
}

/// Threads of a block of join_leaves, and the leaves that it joins. Each warp joins a subtree in
/// registers.
constexpr int kJoinThreads = 1024;
constexpr int kLeavesOfWarp = 16;
constexpr int64_t kLeavesOfBlock = kJoinThreads / kWarp * kLeavesOfWarp;

/// from (leaves,Count,C); to (ceil(leaves / kLeavesOfBlock),Count,C). Row n of `to` is the subtree
/// over the n-th kLeavesOfBlock rows of `from`. An absent leaf is -0, which changes nothing. If one
/// row would remain, it goes to `sums`, not to `to`. One block for 32 columns of a row of `to`.
template <int Count>
static __global__ void __launch_bounds__(kJoinThreads)
    join_leaves(Columns<Count> sums, float* to, const float* from, int64_t leaves, int64_t C,
                Into into) {
  constexpr int kWarps = kJoinThreads / kWarp;
  __shared__ float by_warp[kWarps][kWarp];
  const int64_t columns = Count * C;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane_index();
  const int64_t first = blockIdx.y * kLeavesOfBlock + warp_index() * kLeavesOfWarp;
  float leaf[kLeavesOfWarp];
#pragma unroll
  for (int i = 0; i < kLeavesOfWarp; ++i)
    leaf[i] = column < columns && first + i < leaves ? from[(first + i) * columns + column] : -0.0F;
#pragma unroll
  for (int size = 1; size < kLeavesOfWarp; size *= 2)
#pragma unroll
    for (int left = 0; left < kLeavesOfWarp; left += 2 * size) leaf[left] += leaf[left + size];
  by_warp[warp_index()][lane_index()] = leaf[0];
  for (int size = 1; size < kWarps; size *= 2) {
    __syncthreads();
    if (warp_index() % (2 * size) == 0)
      by_warp[warp_index()][lane_index()] += by_warp[warp_index() + size][lane_index()];
  }
  if (warp_index() > 0 || column >= columns) return;
  const float joined = by_warp[0][lane_index()];
  if (leaves > kLeavesOfBlock) {
    to[blockIdx.y * columns + column] = joined;
    return;
  }
#pragma unroll  // parameters need an index known at compile time
  for (int i = 0; i < Count; ++i) {
    if (column / C != i || sums.to[i] == nullptr) continue;
    float& sum = sums.to[i][column % C];
    sum = into == Into::Add ? sum + joined : joined;
  }
}

/// sums (Count, C) = the sums of the terms of all rows. Short documents have many leaves: then some
/// columns are summed at a time, as many as there is scratch for.
template <int Count, int W, class Terms>
void sum_columns(const Ctx& ctx, const Columns<Count>& sums, Scratch& scratch, const Terms& terms,
                 const VectorTree& tree, int64_t C, Into into) {
  constexpr int64_t kTogether = kWarp * W, kAlignment = 2 * 256;
  const int64_t all = std::max<int64_t>(tree.leaves(), 1), joined = ceil_div(all, kLeavesOfBlock);
  const int64_t of_column = Count * int64_t{sizeof(float)} * (all + joined);
  const int64_t fit = (scratch.room() - kAlignment) / of_column;
  const int64_t unit = fit < kTogether ? W : kTogether;  // of a block that is not full, if need be
  const int64_t at_once = std::min(C, std::max<int64_t>(fit / unit, 1) * unit);
  float *leaves = scratch.take<float>(all * Count * at_once),
        *subtrees = scratch.take<float>(joined * Count * at_once);
  for (int64_t begin = 0; begin < C; begin += at_once) {
    const int64_t columns = std::min(at_once, C - begin);
    Columns<Count> part = sums;
    for (float*& to : part.to) to = to ? to + begin : nullptr;
    float *from = leaves, *to = subtrees;
    // Leaves go along x: only x has room for so many. Each sequence has several.
    launch(ctx, sum_leaves<Count, W, Terms>, {.x = all, .y = ceil_div(columns, kTogether)},
           kThreads, 0, from, terms, tree, begin, columns);
    for (int64_t left = all; left > 0;) {
      const int64_t blocks = ceil_div(left, kLeavesOfBlock);
      launch(ctx, join_leaves<Count>, {.x = ceil_div(Count * columns, kWarp), .y = blocks},
             kJoinThreads, 0, part, to, from, left, columns, into);
      left = blocks == 1 ? 0 : blocks;
      std::swap(to, from);
    }
  }
}

}  // namespace ladder::LADDER_CUDA
