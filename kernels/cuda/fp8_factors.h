// Widens FP8 factors of products to 16 bits, in scratch memory, where tensor cores do not multiply
// FP8.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder::LADDER_CUDA {

/// Tensor cores multiply FP8 if extents and addresses are multiples of this.
constexpr int64_t kFp8Group = 16;

/// Widens columns [begin, begin + count) of x (rows,columns) to `dtype`, without the scale. The
/// result (rows,count) lies at scratch[offset..), and offset moves behind it.
Tensor widened_columns(const Ctx& ctx, const Tensor& x, int64_t begin, int64_t count, Dtype dtype,
                       int64_t& offset);

}  // namespace ladder::LADDER_CUDA
