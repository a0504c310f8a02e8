// Device: a GPU, or the stand-in for one on the CPU. It has memory of its own and a queue of work.
// The work runs in order, later than it is queued.
#pragma once

#include <cstdint>
#include <string>

namespace ladder {

/// What a device says about itself, besides its name. 0 means unknown.
struct DeviceFacts {
  int64_t memory = 0, memory_left = 0;  ///< bytes
  int clock_mhz = 0;                    ///< the highest clock of its processors
};

/// Each rank has one. What is queued runs after everything that was queued before it. Only
/// synchronize() waits. @throws CheckError naming the call if the device refuses it
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// A name for people to read: "NVIDIA H100 80GB HBM3".
  virtual std::string name() const = 0;
  virtual DeviceFacts facts() const { return {}; }

  /// Makes this the device of the calling thread. That need not be the thread that opened it.
  virtual void use_here() {}

  /// Memory that only the device can read, aligned to 256 bytes; null if the device has too little.
  virtual void* allocate(int64_t bytes) = 0;
  /// Host memory that the device can read and write, too; null if there is too little.
  virtual void* allocate_shared(int64_t bytes) = 0;
  virtual void free(void* memory) noexcept = 0;
  virtual void free_shared(void* memory) noexcept = 0;

  /// Queued: sets every byte of device memory.
  virtual void fill(void* memory, uint8_t value, int64_t bytes) = 0;
  /// Queued: copies between any two places. Host memory may be changed or read only after
  /// synchronize().
  virtual void copy(void* out, const void* inp, int64_t bytes) = 0;
  /// Waits for everything queued. @throws CheckError if any of it failed.
  virtual void synchronize() = 0;
};

}  // namespace ladder
