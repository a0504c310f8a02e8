#include "kernels/cuda/on_cpu/shared.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/check.h"
#include "kernels/cuda/grid.h"

// The borders of all shared arrays: see shared.ld.
extern "C" uint64_t ladder_shared_begin[], ladder_shared_end[];

namespace ladder::on_cpu {
namespace {

/// dynamic_shared() is aligned to this many bytes. On a GPU it is aligned to 1024.
constexpr size_t kAlignment = 128;

/// All arrays, including AddressSanitizer's gaps between them, which only this function may write.
/// Volatile: the loop must not become a memset, because that would be checked.
__attribute__((no_sanitize("address", "undefined"))) void poison_arrays() {
  for (volatile uint64_t* p = ladder_shared_begin; p < ladder_shared_end; ++p) *p = ~uint64_t{0};
}

bool within(const void* begin, int64_t size, const void* p, int64_t bytes) {
  const auto from = reinterpret_cast<uintptr_t>(begin), at = reinterpret_cast<uintptr_t>(p);
  return at >= from && at + static_cast<uintptr_t>(bytes) <= from + static_cast<uintptr_t>(size);
}

}  // namespace

void SharedMemory::Free::operator()(void* p) const { std::free(p); }

SharedMemory::SharedMemory(int64_t dynamic_bytes) : dynamic_bytes_(dynamic_bytes) {
  check_shared(dynamic_bytes, kMaxShared);
  void* memory = nullptr;
  CHECK(posix_memalign(&memory, kAlignment, static_cast<size_t>(dynamic_bytes)) == 0,
        "no memory to stand in for shared memory");
  dynamic_.reset(memory);
}

void SharedMemory::poison() {
  poison_arrays();
  std::memset(dynamic_.get(), 0xFF, static_cast<size_t>(dynamic_bytes_));
}

int64_t SharedMemory::offset(const void* p) const {
  const void* begin =
      within(dynamic_.get(), dynamic_bytes_, p, 1) ? dynamic_.get() : ladder_shared_begin;
  return static_cast<const std::byte*>(p) - static_cast<const std::byte*>(begin);
}

bool SharedMemory::holds(const void* p, int64_t bytes) const {
  const auto size =
      static_cast<int64_t>(sizeof(uint64_t)) * (ladder_shared_end - ladder_shared_begin);
  return within(dynamic_.get(), dynamic_bytes_, p, bytes) ||
         within(ladder_shared_begin, size, p, bytes);
}

}  // namespace ladder::on_cpu
