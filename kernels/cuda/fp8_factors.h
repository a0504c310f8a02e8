// FP8 factors of products, widened to 16 bits in scratch memory where the chip multiplies no FP8.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder::LADDER_CUDA {

/// Extents and addresses of what the units for FP8 multiply are multiples of this.
constexpr int64_t kFp8Group = 16;

/// `count` columns of x (rows,columns) from `begin` on, widened to `dtype` into scratch[offset..),
/// which moves on: (rows,count), without the scale.
Tensor widened_columns(const Ctx& ctx, const Tensor& x, int64_t begin, int64_t count, Dtype dtype,
                       int64_t& offset);

}  // namespace ladder::LADDER_CUDA
