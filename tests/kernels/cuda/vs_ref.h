// The CUDA kernels against `ref`, for what only a device has.
#pragma once

#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {

using CudaVsRef = VsRef;

}  // namespace ladder::test
