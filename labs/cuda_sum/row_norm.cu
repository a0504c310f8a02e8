// The norm of each row of a matrix: sums over a warp, over a block. labs/cuda_sum/README.md.
#include <stdexcept>

#include "labs/cuda_sum/row_norm.h"

namespace ladder {

constexpr int kLanesOfWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFF;

// All 32 lanes call it.
__device__ float warp_sum(float x) {
  for (int step = kLanesOfWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// All threads call it, perhaps several times.
__device__ float block_sum(float x) {
  __shared__ float of_warp[kLanesOfWarp];
  const int lane = static_cast<int>(threadIdx.x) % kLanesOfWarp;
  const int warp = static_cast<int>(threadIdx.x) / kLanesOfWarp;
  const int warps = static_cast<int>(blockDim.x) / kLanesOfWarp;
  x = warp_sum(x);
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  x = warp_sum(lane < warps ? of_warp[lane] : 0.0f);
  __syncthreads();  // the next call writes of_warp again
  return x;
}

__global__ void row_norm(float* norms, const float* x, int rows, int columns) {
  for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x)) {
    const float* row = x + int64_t{r} * columns;
    float sum = 0;
    for (int c = static_cast<int>(threadIdx.x); c < columns; c += static_cast<int>(blockDim.x))
      sum += row[c] * row[c];
    sum = block_sum(sum);
    if (threadIdx.x == 0) norms[r] = sqrtf(sum);
  }
}

}  // namespace ladder
