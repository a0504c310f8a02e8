// The device whose kernels are tested: the stand-in on the CPU, or a GPU. Which of them is decided
// by LADDER_CUDA, which CMake sets; the tests are the same.
#pragma once

#include <deque>
#include <memory>

#include <gtest/gtest.h>

#include "kernels/arena.h"
#include "kernels/context.h"
#include "kernels/cuda/table.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace ladder::test {

/// The functions under test: dev::add(dut().ctx, ...).
namespace dev = ladder::LADDER_CUDA;

/// How a process ends whose device has failed.
constexpr int kDeviceFailed = 3;

/// A device, and memory of exact size for tensors on both sides, until clear().
class DeviceUnderTest {
 public:
  DeviceUnderTest();

  Ctx ctx;

  /// A copy on the device, with an Fp8Scale of its own that both sides see.
  Tensor upload(const Tensor& host);
  /// Waits, then a copy on the host.
  Tensor download(const Tensor& device);
  /// On the device; every byte 0xFF, so that floats are NaN.
  Tensor empty(Dtype dtype, Shape shape);
  /// A copy that both sides see: tokens, targets, limbs.
  Tensor share(const Tensor& host);
  /// Waits, then frees all tensors. After a fault of the device every call fails, also those of
  /// later tests: the process ends.
  void clear();

 private:
  void* take(Place place, int64_t bytes);

  struct Memory {
    Place place;
    void* at;
  };
  std::unique_ptr<Device> device_;
  Tensor scratch_;
  std::deque<Memory> memory_;
  std::deque<Fp8Scale> host_scales_;
};

/// One for the whole program: opening a device takes time.
DeviceUnderTest& dut();

/// Frees what a test put on the device; skips it where there is none.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (dev::device_count() == 0) GTEST_SKIP() << "no GPU here";
  }
  void TearDown() override {
    if (dev::device_count() > 0) dut().clear();
  }
};

}  // namespace ladder::test
