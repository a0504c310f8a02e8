// Tests with tensors of a device are written once; on_late_device.cpp and on_cuda.cpp define it.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "common/comm/comm.h"
#include "kernels/transfer.h"
#include "tests/common/comm/on_ranks.h"

namespace ladder::test {

/// The device of this test program. Null: this machine has none
std::unique_ptr<Device> open_test_device();
const Kernels& device_kernels();

/// A rank's device, attached to its communicator, and tensors there.
class DeviceMemory {
 public:
  explicit DeviceMemory(Comm& comm) : comm_(comm) {
    ctx_.kernels = &device_kernels();
    ctx_.device = device_.get();
    comm.attach(device_.get());
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { comm_.attach(nullptr); }

  const Ctx& ctx() const { return ctx_; }
  Arena& arena() { return arena_; }

  Tensor make(Dtype dtype, int64_t n) { return arena_.alloc(Mem::Comm, "test", dtype, {n}); }
  /// Element i is value(rank, i), once the device has come to it.
  Tensor make(Dtype dtype, int64_t n, int rank) { return fill(make(dtype, n), rank); }
  /// Queues that x becomes value(rank, i).
  Tensor fill(Tensor x, int rank) {
    hosts_.emplace_back(static_cast<size_t>(x.bytes()));
    Tensor host = x;
    host.place = Place::Host;
    host.ptr = hosts_.back().data();
    for (int64_t i = 0; i < x.size(); ++i) put(host, i, value(rank, i));
    ctx_.device->copy(x.ptr, host.ptr, x.bytes());
    return x;
  }

  template <class F>
  void expect(const Tensor& x, F&& expected) const {
    expect_elements(HostCopy::of(ctx_, x).tensor(), std::forward<F>(expected));
  }
  bool same_bits(const Tensor& a, const Tensor& b) const {
    const HostCopy x = HostCopy::of(ctx_, a), y = HostCopy::of(ctx_, b);
    return a.bytes() == b.bytes() &&
           std::memcmp(x.tensor().ptr, y.tensor().ptr, static_cast<size_t>(a.bytes())) == 0;
  }

 private:
  Comm& comm_;
  std::unique_ptr<Device> device_ = open_test_device();
  std::deque<std::vector<std::byte>> hosts_;  ///< sources of copies that are queued
  Arena arena_{device_.get()};
  Ctx ctx_;
};

/// Skipped where there is no device.
class DeviceTensors : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!open_test_device()) GTEST_SKIP() << "no GPU here";
  }
};

}  // namespace ladder::test
