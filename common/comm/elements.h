// What communicators do with elements: copy them, and make one of two.
#pragma once

#include "common/comm/call.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace ladder {

/// out = inp, byte by byte; nothing if they are one. Same size and dtype. A tensor of a device is
/// copied by `device`, and waited for; those of two ranks on one GPU may be on one side each
void copy_elements(Tensor out, Tensor inp, Device* device = nullptr);

/// into = into + other, or their maximum; NaN wins. 16-bit floats are rounded once.
/// Same size; F32 F64 BF16 F16 I32 I64 U8, in host memory
void combine_elements(Tensor into, Tensor other, Combine combine);

}  // namespace ladder
