// Device: memory of its own, and a queue of work that runs in order and later: a GPU, or the
// stand-in for one on the CPU.
#pragma once

#include <cstdint>
#include <string>

namespace ladder {

/// What is known of a device beside its name; 0: unknown.
struct DeviceFacts {
  int64_t memory = 0, memory_left = 0;  ///< bytes
  int clock_mhz = 0;                    ///< the highest of its processors
};

/// One a rank. What is queued here runs after everything queued before it; only synchronize()
/// waits. @throws CheckError naming the call if the device refuses one
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// For people: "NVIDIA H100 80GB HBM3".
  virtual std::string name() const = 0;
  virtual DeviceFacts facts() const { return {}; }

  /// Makes it the device of the calling thread, which may not be the one that opened it.
  virtual void use_here() {}

  /// `bytes` of memory, aligned to 256, which only the device can read; null if it has too little.
  virtual void* allocate(int64_t bytes) = 0;
  /// `bytes` of host memory that the device reads and writes, too; null if there is too little.
  virtual void* allocate_shared(int64_t bytes) = 0;
  virtual void free(void* memory) noexcept = 0;
  virtual void free_shared(void* memory) noexcept = 0;

  /// Queued: sets every byte of device memory.
  virtual void fill(void* memory, uint8_t value, int64_t bytes) = 0;
  /// Queued: copies between any two places. Host memory may be changed or read again after
  /// synchronize().
  virtual void copy(void* out, const void* inp, int64_t bytes) = 0;
  /// Waits for everything queued. @throws CheckError if any of it failed
  virtual void synchronize() = 0;
};

}  // namespace ladder
