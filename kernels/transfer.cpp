#include "kernels/transfer.h"

#include <cstring>

namespace ladder {

void zero(const Ctx& ctx, Tensor x) {
  if (x.place == Place::Device) return ctx.device->fill(x.ptr, 0, x.bytes());
  ctx.synchronize();
  std::memset(x.ptr, 0, static_cast<size_t>(x.bytes()));
}

HostCopy::HostCopy(const Ctx& ctx, Tensor tensor) : ctx_(&ctx), tensor_(tensor), host_(tensor) {
  ctx.synchronize();
  if (tensor.place != Place::Device) return;
  bytes_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(tensor.bytes()));
  host_.ptr = bytes_.get();
  host_.place = Place::Host;
}

HostCopy HostCopy::of(const Ctx& ctx, Tensor tensor) {
  HostCopy copy = to_write(ctx, tensor);
  if (copy.bytes_) {
    ctx.device->copy(copy.host_.ptr, tensor.ptr, tensor.bytes());
    ctx.device->synchronize();
  }
  return copy;
}

HostCopy HostCopy::to_write(const Ctx& ctx, Tensor tensor) { return HostCopy(ctx, tensor); }

void HostCopy::turn_to(Tensor other) {
  tensor_ = host_ = other;
  if (!bytes_) return;
  host_.ptr = bytes_.get();
  host_.place = Place::Host;
}

void HostCopy::send() const {
  if (!bytes_) return;
  ctx_->device->copy(tensor_.ptr, host_.ptr, tensor_.bytes());
  ctx_->device->synchronize();
}

}  // namespace ladder
