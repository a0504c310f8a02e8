// The loss of a row of logits, and its gradient: maximum and sum in one pass.
// labs/cuda_loss/README.md.
#include <cmath>
#include <stdexcept>

#include "labs/cuda_loss/softmax_loss.h"

namespace ladder {

__device__ PartialSoftmax merge(PartialSoftmax a, PartialSoftmax b) {
  const float max = fmaxf(a.max, b.max);
  if (max == -INFINITY) return {max, 0};  // nothing to add; -infinity less -infinity is NaN
  return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
}

__device__ PartialSoftmax block_softmax(PartialSoftmax mine) {
  constexpr int kWarp = 32;
  __shared__ PartialSoftmax of_warp[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto over_lanes = [](PartialSoftmax softmax) {
    for (int step = kWarp / 2; step > 0; step /= 2)
      softmax = merge(softmax, {__shfl_xor_sync(0xFFFFFFFF, softmax.max, step),
                                __shfl_xor_sync(0xFFFFFFFF, softmax.sum, step)});
    return softmax;
  };
  mine = over_lanes(mine);
  if (lane == 0) of_warp[warp] = mine;
  __syncthreads();
  mine = {-INFINITY, 0};
  if (lane < static_cast<int>(blockDim.x) / kWarp) mine = of_warp[lane];
  mine = over_lanes(mine);
  __syncthreads();  // the next call writes of_warp again
  return mine;
}

__global__ void softmax_loss(float* losses, float* gradients, const float* logits,
                             const int* targets, int rows, int columns, float scale) {
  const int first = static_cast<int>(threadIdx.x), step = static_cast<int>(blockDim.x);
  for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x)) {
    const float* row = logits + int64_t{r} * columns;
    PartialSoftmax softmax = {-INFINITY, 0};
    for (int c = first; c < columns; c += step) softmax = merge(softmax, {row[c], 1});
    softmax = block_softmax(softmax);
    const float log_sum = softmax.max + logf(softmax.sum);
    const int target = targets[r];
    if (first == 0) losses[r] = log_sum - row[target];
    for (int c = first; c < columns; c += step) {
      const float one = c == target ? 1.0f : 0.0f;
      gradients[int64_t{r} * columns + c] = scale * (expf(row[c] - log_sum) - one);
    }
  }
}

}  // namespace ladder
