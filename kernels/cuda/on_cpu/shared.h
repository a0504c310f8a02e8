// Shared memory: the arrays that kernels declare, and the array that a launch sizes.
//
// `__shared__ float x[N]` becomes a static variable in a section of its own. Blocks run one after
// the other, so one copy serves; before each block every byte of the section is set to 0xFF, so
// that an element nobody wrote is NaN. GCC cannot mix variables of inline functions and of others
// in one section, so functions with shared arrays are static or in an unnamed namespace.
#pragma once

#include <cstdint>
#include <memory>

#define __shared__ static __attribute__((section("ladder_shared")))

namespace ladder::on_cpu {

/// What an sm_80 has for one block. The stand-in has no more, so that nobody comes to need more.
constexpr int64_t kMaxShared = 163 << 10;

/// The shared memory of the block that runs. Exact size: AddressSanitizer sees an index beyond.
class SharedMemory {
 public:
  explicit SharedMemory(int64_t dynamic_bytes);

  /// Every byte 0xFF, as a new block finds it.
  void poison();
  void* dynamic() const { return dynamic_.get(); }
  /// Whether [p, p + bytes) lies in shared memory.
  bool holds(const void* p, int64_t bytes) const;

 private:
  struct Free {
    void operator()(void* p) const;
  };
  int64_t dynamic_bytes_;
  std::unique_ptr<void, Free> dynamic_;
};

}  // namespace ladder::on_cpu
