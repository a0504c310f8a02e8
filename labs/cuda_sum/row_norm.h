// The kernel of lab cuda_sum, for its check.
#pragma once

#include <cuda_runtime.h>

namespace ladder {

/// The sum over the lanes of a warp, or over the threads of a block of any number of warps, in each
/// of them.
__device__ float warp_sum(float x);
__device__ float block_sum(float x);

/// norms[r] = sqrt(sum over c of x[r,c]^2). A block has whole warps; there may be fewer blocks than
/// rows.
/// @param norms (rows)
/// @param x     (rows,columns)
__global__ void row_norm(float* norms, const float* x, int rows, int columns);

}  // namespace ladder
