#include "tests/common/comm/late_device.h"
#include "tests/common/comm/on_device.h"

namespace ladder::test {

std::unique_ptr<Device> open_test_device() { return std::make_unique<LateDevice>(); }

const Kernels& device_kernels() { return late_kernels(); }

}  // namespace ladder::test
