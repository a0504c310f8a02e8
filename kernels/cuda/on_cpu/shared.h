// Shared memory: the arrays that kernels declare, and the array that a launch sizes.
//
// `__shared__ float x[N]` becomes a static variable, which shared.ld places beside all others of
// its kind. Blocks run one after the other, so one copy is enough. Before each block every byte is
// set to 0xFF, so an element that nobody wrote is NaN. For this reason functions in .cu files may
// have no other static variables.
#pragma once

#include <cstdint>
#include <memory>

#define __shared__ static

namespace ladder::on_cpu {

/// What one block of an sm_80 can have, so that no kernel comes to need more. (The stand-in says
/// that it is an sm_90, which has 227. Other GPUs have 99; tests take so little where they say so.)
constexpr int64_t kMaxShared = 163 << 10;

/// The shared memory of the block that runs. It has the exact size: AddressSanitizer sees an index
/// beyond it.
class SharedMemory {
 public:
  explicit SharedMemory(int64_t dynamic_bytes);

  /// Sets every byte to 0xFF, as a new block finds it.
  void poison();
  void* dynamic() const { return dynamic_.get(); }
  /// Whether [p, p + bytes) lies in shared memory.
  bool holds(const void* p, int64_t bytes) const;
  /// From the begin of the arrays that kernels declare, or of dynamic() if p lies there.
  int64_t offset(const void* p) const;

 private:
  struct Free {
    void operator()(void* p) const;
  };
  int64_t dynamic_bytes_;
  std::unique_ptr<void, Free> dynamic_;
};

}  // namespace ladder::on_cpu
