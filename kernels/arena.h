// Arena: the only owner of tensor memory. It counts every byte under a category,
// so that a memory formula in a chapter's text can be held against it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace ladder {

/// What memory is for.
enum class Mem : uint8_t {
  Param,       ///< the weights that forward and backward read
  Master,      ///< FP32 weights, where Param is narrower
  Grad,        ///< gradients of the parameters
  Optim,       ///< the optimizer's state
  Activation,  ///< what forward keeps for backward
  Workspace,   ///< other memory, which no later step reads
  Comm,        ///< buffers of the communicator
  Staging,     ///< copies on their way to a file
};
constexpr int kMemCount = 8;
constexpr std::array<std::string_view, kMemCount> kMemNames = {
    "Param", "Master", "Grad", "Optim", "Activation", "Workspace", "Comm", "Staging"};

/// One number of bytes for each category.
struct MemoryBytes {
  std::array<int64_t, kMemCount> bytes{};

  int64_t& operator[](Mem mem) { return bytes[static_cast<int>(mem)]; }
  int64_t operator[](Mem mem) const { return bytes[static_cast<int>(mem)]; }
  int64_t total() const {
    int64_t sum = 0;
    for (int64_t b : bytes) sum += b;
    return sum;
  }
};

/// Bytes that this process can still fill: what the system calls available, plus swap. Some systems
/// promise more memory than they have. Such a system refuses nothing when memory is asked for; it
/// ends the process with SIGKILL when memory is filled.
int64_t host_memory_left();

/// Owns tensors until it dies or they are released. Not thread-safe: one Arena a rank.
class Arena {
 public:
  /// Its memory is that of `device`, which must live longer than the arena. Null means the host.
  explicit Arena(Device* device = nullptr) : device_(device) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A new tensor, aligned to 64 bytes. It lies in the memory of the device if there is one. Every
  /// byte is 0xFF, so floats start as NaN, and an element that nobody wrote shows. A tensor of 4
  /// MiB or more in host memory lies in huge pages (2 MiB) where the system has them.
  /// @throws OutOfMemory naming the tensor, its size and what the arena holds; NoTemporaryFile
  Tensor alloc(Mem mem, std::string name, Dtype dtype, Shape shape);

  /// The same, but every byte is 0. For states that start at zero. Also for gradients whose whole
  /// buffer is added or sent (from chapter 04 on): that reads the gaps between tensors, too.
  Tensor zeros(Mem mem, std::string name, Dtype dtype, Shape shape);

  /// alloc() for what the host reads or writes in every step, such as tokens and losses. With a
  /// device it is Place::Shared.
  Tensor shared(Mem mem, std::string name, Dtype dtype, Shape shape);

  /// Copies the bytes of `to` from host memory, and waits until that is done. For tables that the
  /// host computes once and kernels read in every step.
  void write(const Tensor& to, const void* from) const;

  /// From here on, new tensors of `mem` lie in temporary files that are mapped into memory. The
  /// machine writes them to disk when it needs the room. Only offloaded() counts them.
  void offload(Mem mem);
  /// Bytes of those files, in whole pages.
  int64_t offloaded() const { return offloaded_; }
  /// Gives back the memory of those files. Returns how much of it was in use: the whole pages that
  /// were read or written since the last call.
  int64_t drop_offloaded();

  /// Gives back the bytes of a tensor that came from alloc(), and makes the view null.
  void release(Tensor& tensor);

  const MemoryBytes& current() const { return current_; }
  const MemoryBytes& peak() const { return peak_; }

 private:
  struct Free {
    Device* device;
    Place place;
    int64_t mapped;  ///< bytes of a mapped file; 0: none
    void operator()(void* p) const;
  };
  using Memory = std::unique_ptr<void, Free>;
  struct Block {
    Memory memory;
    Mem mem;
    std::string name;
    int64_t bytes;
  };

  /// Every byte is `value`.
  Tensor alloc_in(Place place, Mem mem, std::string name, Dtype dtype, Shape shape, uint8_t value);
  /// Where alloc() and zeros() find memory.
  Place own() const { return device_ ? Place::Device : Place::Host; }
  void count(Mem mem, int64_t bytes);
  Memory take(Place place, Mem mem, int64_t bytes) const;
  void fill(const Tensor& tensor, uint8_t value) const;

  Device* device_ = nullptr;
  std::vector<Block> blocks_;
  MemoryBytes current_, peak_;
  std::array<bool, kMemCount> in_files_{};
  int64_t offloaded_ = 0;
};

}  // namespace ladder
