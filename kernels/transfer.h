// Moves bytes between the memory of the host and that of a device.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder {

/// Sets every byte of x to 0. On a device this is queued like a kernel. On the host it happens at
/// once, after waiting for the kernels called so far.
void zero(const Ctx& ctx, Tensor x);

/// A tensor where the host can read and write it: the tensor itself, or a copy in host memory.
class HostCopy {
 public:
  /// A copy of the values. Waits for the kernels called so far.
  static HostCopy of(const Ctx& ctx, Tensor tensor);
  /// A copy without values, for a tensor that will be written whole.
  static HostCopy to_write(const Ctx& ctx, Tensor tensor);
  /// From here on a copy without values of `other`, which has no more bytes than the first tensor.
  /// Its memory is used again: an operating system takes longer to give new pages than to copy.
  void turn_to(Tensor other);

  /// Never Place::Device. It has the tensor's dtype and shape.
  Tensor tensor() const { return host_; }
  /// Copies what the host has written back to the tensor, and waits until that is done.
  void send() const;

 private:
  HostCopy(const Ctx& ctx, Tensor tensor);

  const Ctx* ctx_;
  Tensor tensor_, host_;
  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace ladder
