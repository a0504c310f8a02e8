// mma and ldmatrix as exchanges between the lanes of a warp.
#pragma once

#include <cstdint>

#include "kernels/cuda/on_cpu/block.h"
#include "kernels/narrow.h"

namespace ladder::on_cpu {

/// D += A B, with D (16,8), A (16,16) and B (16,8) spread over the lanes. Sums are FP32, and ascend
/// in k. A GPU adds in an order of its own.
void multiply_fragments(const Format& format, float* d, const uint32_t* a, const uint32_t* b,
                        Where where);

/// r[i] of each lane gets its part of matrix i of four, transposed or not.
void load_matrices(uint32_t* r, const void* row, bool transposed, Where where);

}  // namespace ladder::on_cpu
