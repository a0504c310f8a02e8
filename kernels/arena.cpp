#include "kernels/arena.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>

#include <sys/mman.h>

#include "kernels/mapped_file.h"

namespace ladder {
namespace {

constexpr int64_t kByteAlign = 64;
constexpr uint8_t kUnwritten = 0xFF;  // a float of such bytes is NaN
constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kLarge = 2 * kHugePage;

// Filling memory changes how much the machine has left, so ranks check and fill one at a time.
std::mutex filling;

/// Memory of the host, or null if there is too little. A large tensor asks for huge pages: a walk
/// down a column of a weight enters another page with every row, and each page has to be looked up.
void* take_from_host(int64_t bytes) {
  const bool large = bytes >= kLarge;
  if (large && bytes > host_memory_left()) return nullptr;
  void* p = nullptr;
  if (posix_memalign(&p, large ? kHugePage : kByteAlign, static_cast<size_t>(bytes)) != 0)
    return nullptr;
  // Whole huge pages only: the last one would otherwise take more than was asked for. If the system
  // has none, nothing changes.
  if (large) madvise(p, static_cast<size_t>(bytes / kHugePage * kHugePage), MADV_HUGEPAGE);
  return p;
}

/// "Param 16384, Grad 65536" or "nothing"
std::string text_of(const MemoryBytes& bytes) {
  std::string text;
  for (size_t i = 0; i < kMemNames.size(); ++i)
    if (bytes.bytes[i] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kMemNames[i], bytes.bytes[i]);
  return text.empty() ? "nothing" : text;
}

/// The bytes left in that place, for a message.
std::string left_in(Place place, const Device* device) {
  if (place != Place::Device)
    return fmt::format("; the machine has {} bytes left", host_memory_left());
  const DeviceFacts facts = device->facts();
  return fmt::format("; {} has {} of {} bytes left", device->name(), facts.memory_left,
                     facts.memory);
}

}  // namespace

int64_t host_memory_left() {
  std::ifstream system("/proc/meminfo");
  std::string name;
  int64_t kilobytes = 0;
  for (int64_t number = 0; system >> name >> number;
       system.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (name == "MemAvailable:" || name == "SwapFree:") kilobytes += number;
  return kilobytes > 0 ? 1024 * kilobytes : std::numeric_limits<int64_t>::max();
}

void Arena::Free::operator()(void* p) const {
  if (mapped > 0)
    unmap_file(p, mapped);
  else if (place == Place::Host)
    std::free(p);
  else if (place == Place::Shared)
    device->free_shared(p);
  else
    device->free(p);
}

Arena::Memory Arena::take(Place place, Mem mem, int64_t bytes) const {
  const int64_t padded = std::max(round_up(bytes, kByteAlign), kByteAlign);
  const auto owned = [&](void* p, int64_t mapped) {
    return Memory(p, Free{device_, place, mapped});
  };
  if (in_files_[static_cast<size_t>(mem)]) return owned(map_file(padded), padded);
  if (place == Place::Host) return owned(take_from_host(padded), 0);
  return owned(
      place == Place::Shared ? device_->allocate_shared(padded) : device_->allocate(padded), 0);
}

void Arena::offload(Mem mem) {
  CHECK(!device_, "memory of a device does not lie in files");
  in_files_[static_cast<size_t>(mem)] = true;
}

int64_t Arena::drop_offloaded() {
  int64_t in_use = 0;
  for (const Block& block : blocks_)
    if (const int64_t mapped = block.memory.get_deleter().mapped; mapped > 0)
      in_use += drop_pages(block.memory.get(), mapped);
  return in_use;
}

void Arena::fill(const Tensor& tensor, uint8_t value) const {
  if (tensor.place == Place::Device)
    device_->fill(tensor.ptr, value, tensor.bytes());
  else
    std::memset(tensor.ptr, value, static_cast<size_t>(tensor.bytes()));
}

void Arena::write(const Tensor& to, const void* from) const {
  if (to.place != Place::Device) {
    std::memcpy(to.ptr, from, static_cast<size_t>(to.bytes()));
    return;
  }
  device_->copy(to.ptr, from, to.bytes());
  device_->synchronize();
}

Tensor Arena::alloc_in(Place place, Mem mem, std::string name, Dtype dtype, Shape shape,
                       uint8_t value) {
  Tensor tensor{.ptr = nullptr, .dtype = dtype, .place = place, .shape = shape};
  const int64_t bytes = tensor.bytes();
  std::unique_lock lock(filling, std::defer_lock);
  if (place == Place::Host && bytes >= kLarge) lock.lock();
  Block block{
      .memory = take(place, mem, bytes), .mem = mem, .name = std::move(name), .bytes = bytes};
  if (!block.memory)
    throw OutOfMemory(fmt::format("no memory for {} {}: {} bytes, beside {}{}", block.name,
                                  to_string(shape), bytes, text_of(current_),
                                  left_in(place, device_)));
  tensor.ptr = block.memory.get();
  fill(tensor, value);
  blocks_.push_back(std::move(block));
  count(mem, bytes);
  return tensor;
}

void Arena::count(Mem mem, int64_t bytes) {
  if (in_files_[static_cast<size_t>(mem)]) {
    offloaded_ += mapped_bytes(bytes);
    return;
  }
  current_[mem] += bytes;
  peak_[mem] = std::max(peak_[mem], current_[mem]);
}

Tensor Arena::alloc(Mem mem, std::string name, Dtype dtype, Shape shape) {
  return alloc_in(own(), mem, std::move(name), dtype, shape, kUnwritten);
}

Tensor Arena::shared(Mem mem, std::string name, Dtype dtype, Shape shape) {
  const Place place = device_ ? Place::Shared : Place::Host;
  return alloc_in(place, mem, std::move(name), dtype, shape, kUnwritten);
}

Tensor Arena::zeros(Mem mem, std::string name, Dtype dtype, Shape shape) {
  return alloc_in(own(), mem, std::move(name), dtype, shape, 0);
}

void Arena::release(Tensor& tensor) {
  const auto at = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
    return block.memory.get() == tensor.ptr;
  });
  CHECK(tensor && at != blocks_.end(), "{} is not of this arena", to_string(tensor.shape));
  if (at->memory.get_deleter().mapped > 0)
    offloaded_ -= mapped_bytes(at->bytes);
  else
    current_[at->mem] -= at->bytes;
  blocks_.erase(at);
  tensor = Tensor{};
}

}  // namespace ladder
