// A GPU, or the stand-in for one. CMake sets LADDER_CUDA, which says which of the two.
#include "kernels/cuda/backend.h"
#include "tests/common/comm/on_device.h"

namespace ladder::test {

std::unique_ptr<Device> open_test_device() {
  return LADDER_CUDA::device_count() == 0 ? nullptr : LADDER_CUDA::open_device(0);
}

const Kernels& device_kernels() { return LADDER_CUDA::kernels(); }

}  // namespace ladder::test
