// Between the memory of the host and that of a device.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder {

/// Every byte of x becomes 0: queued like a kernel, or at once where the host writes, after waiting
/// for the kernels called so far.
void zero(const Ctx& ctx, Tensor x);

/// A tensor where the host can read and write it: itself, or a copy of it in host memory.
class HostCopy {
 public:
  /// Waits for the kernels called so far; the values are those they wrote.
  static HostCopy of(const Ctx& ctx, Tensor tensor);
  /// Of a tensor that will be written whole, so its values do not matter.
  static HostCopy to_write(const Ctx& ctx, Tensor tensor);

  /// Not Place::Device; of the tensor's dtype and shape.
  Tensor tensor() const { return host_; }
  /// Brings what the host has written back to the tensor, and waits until it is there.
  void send() const;

 private:
  HostCopy(const Ctx& ctx, Tensor tensor);

  const Ctx* ctx_;
  Tensor tensor_, host_;
  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace ladder
