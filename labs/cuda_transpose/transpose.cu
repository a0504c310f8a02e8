// A matrix transposed by tiles in shared memory. labs/cuda_transpose/README.md.
#include <stdexcept>

#include "labs/cuda_transpose/transpose.h"

namespace ladder {

__global__ void transpose(float* out, const float* x, int rows, int columns) {
  constexpr int kTile = 32;
  // One column more than a tile has: so the elements of a column lie in 32 different banks.
  __shared__ float tile[kTile][kTile + 1];
  const int lane = static_cast<int>(threadIdx.x) % kTile;
  const int first = static_cast<int>(threadIdx.x) / kTile, step = kTransposeThreads / kTile;
  const int across = (columns + kTile - 1) / kTile, down = (rows + kTile - 1) / kTile;
  for (int t = static_cast<int>(blockIdx.x); t < across * down; t += static_cast<int>(gridDim.x)) {
    const int row = t / across * kTile, column = t % across * kTile;
    for (int i = first; i < kTile; i += step)
      if (row + i < rows && column + lane < columns)
        tile[i][lane] = x[int64_t{row + i} * columns + column + lane];
    __syncthreads();
    for (int i = first; i < kTile; i += step)
      if (column + i < columns && row + lane < rows)
        out[int64_t{column + i} * rows + row + lane] = tile[lane][i];
    __syncthreads();  // the next tile comes to the same place
  }
}

}  // namespace ladder
