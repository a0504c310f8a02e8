// What lab cuda_loss asks for, for its check.
#pragma once

#include <cuda_runtime.h>

namespace ladder {

/// What some numbers x say of a softmax: the largest of them, and the sum of exp(x - max). Of no
/// numbers, and of numbers that all are -infinity, it is {-infinity, 0}.
struct PartialSoftmax {
  float max, sum;
};

/// The partial softmax of all numbers of both.
__device__ PartialSoftmax merge(PartialSoftmax a, PartialSoftmax b);
/// The partial softmax of the numbers of all threads of a block, in every thread.
__device__ PartialSoftmax block_softmax(PartialSoftmax mine);

/// With s = log(sum over c of exp(x[r,c])) and t = targets[r]:
///   losses[r] = s - x[r,t]
///   gradients[r,c] = scale (exp(x[r,c] - s) - (1 if c is t, else 0))
/// A block has whole warps; there may be fewer blocks than rows. A logit may be -infinity.
/// @param losses    (rows)
/// @param gradients (rows,columns)
/// @param logits    x (rows,columns)
/// @param targets   (rows)
__global__ void softmax_loss(float* losses, float* gradients, const float* logits,
                             const int* targets, int rows, int columns, float scale);

}  // namespace ladder
