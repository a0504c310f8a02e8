// The kernel of lab cuda_transpose, for its check.
#pragma once

#include <cuda_runtime.h>

namespace ladder {

constexpr int kTransposeThreads = 256;

/// out[c,r] = x[r,c]. Blocks have kTransposeThreads threads; there may be fewer blocks than tiles.
/// @param out (columns,rows)
/// @param x   (rows,columns)
__global__ void transpose(float* out, const float* x, int rows, int columns);

}  // namespace ladder
