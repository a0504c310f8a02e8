// The table whose operations are tested: `ref`, `cpu`, or that of a device, the stand-in on the CPU
// or a GPU. A test is compiled once; which table it tests is decided by what it is linked with:
// under_test_host.cpp or under_test_device.cpp.
#pragma once

#include <gtest/gtest.h>

#include "kernels/arena.h"
#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder::test {

/// A table, and memory of exact size for tensors on both sides, until clear().
class UnderTest {
 public:
  virtual ~UnderTest() = default;

  Ctx ctx;

  /// A copy that the operations can read, with an Fp8Scale of its own that both sides see.
  virtual Tensor upload(const Tensor& host) = 0;
  /// Waits, then a copy on the host.
  virtual Tensor download(const Tensor& device) = 0;
  /// For the operations; every byte 0xFF, so that floats are NaN.
  virtual Tensor empty(Dtype dtype, Shape shape) = 0;
  /// A copy that both sides see: tokens, targets, limbs.
  virtual Tensor share(const Tensor& host) = 0;
  /// As if a block of the device could have at most `bytes` of shared memory. False on a host.
  virtual bool limit_shared(int64_t /*bytes*/) { return false; }
  /// Whether a Hopper's own instructions are used. False on a host.
  virtual bool use_hopper(bool /*used*/) { return false; }
  /// Waits, then frees all tensors.
  virtual void clear() = 0;
};

/// One for the whole program: opening a device takes time.
UnderTest& dut();
/// False where there is no GPU.
bool dut_exists();

/// Frees what a test put on the device; skips it where there is none.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!dut_exists()) GTEST_SKIP() << "no GPU here";
  }
  void TearDown() override {
    if (dut_exists()) dut().clear();
  }
};

}  // namespace ladder::test
