// How kernels that pass over whole arrays divide them: each thread takes W neighbors at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/check.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/grid.h"

namespace ladder::LADDER_CUDA {

/// Threads of a block, unless a kernel needs another number.
constexpr int kThreads = 256;

/// Passes a number of neighbors to a lambda.
template <int W>
struct Width {};

/// Calls f with `W` if all `tensors` are aligned to 16 bytes, else with 1.
///     dispatch_width<4>({out, inp}, [&]<int W>(Width<W>) { ... load<W>(inp + i) ... });
template <int W, class F>
void dispatch_width(std::initializer_list<Tensor> tensors, F&& f) {
  bool aligned = true;
  for (const Tensor& tensor : tensors)
    aligned = aligned && reinterpret_cast<uintptr_t>(tensor.ptr) % 16 == 0;
  if (aligned)
    f(Width<W>{});
  else
    f(Width<1>{});
}

/// The same for kWidth<T>. Here each row of `columns` elements must be aligned, too.
template <class T, class F>
void dispatch_width(int64_t columns, std::initializer_list<Tensor> tensors, F&& f) {
  if (columns % kWidth<T> == 0)
    dispatch_width<kWidth<T>>(tensors, f);
  else
    f(Width<1>{});
}

/// Blocks of kThreads threads for n elements, W per thread.
template <int W>
Grid grid_over(int64_t n) {
  return {.x = ceil_div(n, kThreads * W)};
}

/// How many rows a block of row_grid() takes. Loads of all of them are in progress at once.
constexpr int kBlockRows = 4;

/// Threads of a block that takes rows of C elements, W per thread: as many as a row needs, up to
/// kThreads.
template <int W>
int row_threads(int64_t C) {
  return static_cast<int>(std::clamp<int64_t>(round_up<int64_t>(ceil_div(C, W), 32), 32, kThreads));
}
/// Blocks of row_threads<W>(C) threads for (rows, C) elements.
template <int W>
Grid row_grid(int64_t rows, int64_t C) {
  return {.x = ceil_div(rows, kBlockRows), .y = ceil_div(C, row_threads<W>(C) * W)};
}

/// The first row of this thread's block in such a grid, and the first of the thread's own W
/// columns. No thread divides by C, which takes a hundred instructions.
struct RowBlock {
  int64_t row, column;
};
template <int W>
__device__ RowBlock row_block() {
  return {int64_t{blockIdx.x} * kBlockRows, (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * W};
}

/// The number of this thread among the threads of all blocks of a one-dimensional grid.
__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// load() of the first `count` of N elements, where an array may end. Elements past the end are 0.
/// W is 1 if `from` is not aligned.
template <int N, int W = N, class T>
__device__ Floats<N> load_part(const T* from, int64_t count) {
  if (W > 1 && count >= N) return load<N>(from);
  Floats<N> x = {};
#pragma unroll  // registers need an index known at compile time
  for (int i = 0; i < N; ++i)
    if (i < count) x.at[i] = to_float(from[i]);
  return x;
}

/// store() of the first `count` of N elements.
template <int N, int W = N, class T>
__device__ void store_part(T* to, const Floats<N>& x, int64_t count) {
  if (W > 1 && count >= N) return store<N>(to, x);
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < count) to[i] = from_float<T>(x.at[i]);
}

}  // namespace ladder::LADDER_CUDA
