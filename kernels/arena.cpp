#include "kernels/arena.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace ladder {

void Arena::FreeDeleter::operator()(void* p) const { std::free(p); }

Tensor Arena::alloc(Mem mem, std::string name, Dtype dtype, Shape shape) {
  Tensor tensor{.ptr = nullptr, .dtype = dtype, .place = Place::Host, .shape = shape};
  const int64_t bytes = tensor.bytes();
  if (!dry_run()) {
    constexpr int64_t kByteAlign = 64;
    const auto padded = static_cast<size_t>(std::max(round_up(bytes, kByteAlign), kByteAlign));
    Block block{.memory = Memory(std::aligned_alloc(kByteAlign, padded)),
                .mem = mem,
                .name = std::move(name),
                .bytes = bytes};
    CHECK(block.memory, "no memory for {} {}: {} bytes", block.name, to_string(shape), bytes);
    tensor.ptr = block.memory.get();
    std::memset(tensor.ptr, 0xFF, padded);
    blocks_.push_back(std::move(block));
  }
  current_[mem] += bytes;
  peak_[mem] = std::max(peak_[mem], current_[mem]);
  return tensor;
}

Tensor Arena::zeros(Mem mem, std::string name, Dtype dtype, Shape shape) {
  const Tensor tensor = alloc(mem, std::move(name), dtype, shape);
  if (tensor) std::memset(tensor.ptr, 0, static_cast<size_t>(tensor.bytes()));
  return tensor;
}

void Arena::release(Tensor& tensor) {
  const auto at = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
    return block.memory.get() == tensor.ptr;
  });
  CHECK(tensor && at != blocks_.end(), "{} is not of this arena", to_string(tensor.shape));
  current_[at->mem] -= at->bytes;
  blocks_.erase(at);
  tensor = Tensor{};
}

}  // namespace ladder
