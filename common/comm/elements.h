// What communicators do with elements: copy them, and combine two into one.
#pragma once

#include "common/comm/call.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace ladder {

/// out = inp, byte by byte. Does nothing if both are the same memory. Same size and dtype. out and
/// inp may be of two ranks that share a GPU.
/// @param device makes the copy, and is waited for, if a tensor lies in its memory
void copy_elements(Tensor out, Tensor inp, Device* device = nullptr);

/// into = into + other, or the maximum of both. NaN wins. 16-bit floats are rounded once.
/// Same size; F32 F64 BF16 F16 I32 I64 U8, in host memory
void combine_elements(Tensor into, Tensor other, Combine combine);

}  // namespace ladder
