// What communicators do with elements in host memory: copy them, and make one of two.
#pragma once

#include "common/comm/call.h"
#include "kernels/tensor.h"

namespace ladder {

/// out = inp, byte by byte; nothing if they are one. Same size and dtype
void copy_elements(Tensor out, Tensor inp);

/// into = into + other, or their maximum; NaN wins. 16-bit floats are rounded once.
/// Same size; F32 F64 BF16 F16 I32 I64 U8
void combine_elements(Tensor into, Tensor other, Combine combine);

}  // namespace ladder
