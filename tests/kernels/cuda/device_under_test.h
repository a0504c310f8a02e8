// For tests of what only a device has. They call its functions by name:
// dev::attention_forward(dut().ctx, ...). CMake sets LADDER_CUDA: the stand-in, or a GPU.
#pragma once

#include "kernels/cuda/table.h"
#include "kernels/device.h"
#include "tests/kernels/under_test.h"

namespace ladder::test {

namespace dev = ladder::LADDER_CUDA;

}  // namespace ladder::test
