// Sums and maxima over the threads of a warp or a block, always in the same order.
//
// This is a butterfly: in step s each lane adds what lane ^ s holds, for s = 16, 8, ..., 1. Both
// partners add the same two numbers, so every lane ends with the same bits.
#pragma once

#include <cuda_runtime.h>

namespace ladder::LADDER_CUDA {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFF;

__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

/// What a reduction over a warp or a block computes.
struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
  static constexpr float kNeutral = 0;
};

/// The maximum; NaN if either number is NaN, unlike fmaxf.
struct Max {
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
  static constexpr float kNeutral = -__builtin_huge_valf();
};

/// x of all 32 lanes joined, in every lane.
template <class T, class Join>
__device__ T warp_reduce(T x, Join join) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) x = join(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
template <class T>
__device__ T warp_sum(T x) {
  return warp_reduce(x, Sum{});
}

/// x of all threads of the block joined, in every thread: first within each warp, then over warps.
/// All threads must call it, in a one-dimensional block of whole warps.
template <class Join>
__device__ float block_reduce(float x, Join join) {
  __shared__ float partial[kWarp];
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  x = warp_reduce(x, join);
  if (lane_index() == 0) partial[warp_index()] = x;
  __syncthreads();
  x = warp_reduce(lane_index() < warps ? partial[lane_index()] : Join::kNeutral, join);
  __syncthreads();  // the next call may write `partial` again
  return x;
}
__device__ inline float block_sum(float x) { return block_reduce(x, Sum{}); }
__device__ inline float block_max(float x) { return block_reduce(x, Max{}); }

}  // namespace ladder::LADDER_CUDA
