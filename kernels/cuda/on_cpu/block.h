// A block of threads on the CPU. Each thread is a fiber, and runs until it has to wait for others.
// The next one to run is drawn at random. So code that needs an order which no barrier gives goes
// wrong for some seed. In half of all blocks the draw is even. In the other half warps have a
// random order: the first warp runs as far as it can, and the last is far behind.
//
// What a GPU leaves undefined is an error here: a barrier that some threads do not reach, a shuffle
// that some lanes of its mask do not reach. So is a barrier that a thread misses because it has
// returned, which newer GPUs allow. The error names the kernel, the block and the thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

#include "kernels/cuda/grid.h"

namespace ladder::on_cpu {

/// Where a call is in the source. A launch tells the kernel by it, a barrier its line.
using Where = std::source_location;

constexpr int kLanes = 32;

/// What all lanes of a warp bring to an exchange; null for lanes that are not in its mask.
using Lanes = std::array<void*, kLanes>;

/// Runs `kernel` once for each thread of each block. The blocks run one after the other, and the
/// whole process runs one launch at a time, of whichever rank.
/// @throws what a thread threw; CheckError if threads wait forever
void run_grid(Where where, const Grid& grid, int threads, int64_t shared_bytes,
              const std::function<void()>& kernel);

/// The order of threads and blocks follows from the seed and from how many launches this host
/// thread has made since. (Such a thread may be one of several ranks.) The first seed is
/// $LADDER_ON_CPU_SEED, or 1.
void set_seed(uint64_t seed);

// ---- what device functions are made of; threads of a block call them ---------------------------

/// Waits until every thread of the block is at this line.
void meet_block(Where where);

/// Waits until every lane of `mask` is at this line with the same mask. Then one of them calls
/// exchange(lanes), where lanes[i] is what lane i passed as `mine`.
/// @throws CheckError if this lane is not in the mask
void meet_warp(const char* name, unsigned mask, void* mine, void (*exchange)(const Lanes&),
               Where where);

/// The number of this thread in its warp.
int lane_of_thread();

/// The block's dynamic shared memory.
void* dynamic_shared_memory();

/// @throws CheckError naming the thread and `what` unless [p, p + bytes) is shared memory and p
/// is a multiple of `bytes`
void check_shared(const void* p, int64_t bytes, const char* what);

/// Throws CheckError with the kernel, the block and the thread before `what`.
[[noreturn]] void fail(const std::string& what);

/// A random number from 0 to n - 1.
uint64_t draw_below(uint64_t n);

/// A copy of 16 bytes. A random draw decides whether it arrives at once, or when this thread waits
/// for its group. If `from` is null, it copies zeros.
void start_copy(void* to, const void* from);
void close_copy_group();
void land_copies(int pending_groups);

// ---- for whoever watches (watch.h) --------------------------------------------------------------

enum class Access : uint8_t { Read, Write, Atomic };
enum class Memory : uint8_t { Shared, Device, Other };

/// Is told of what happens in kernels. There is none unless watch.cpp is linked.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void begin_launch(const std::string& kernel) = 0;
  virtual void begin_block(int threads) = 0;
  virtual void barrier() = 0;
  virtual void meet_warp(int first_thread) = 0;  ///< all of its lanes, for whatever reason
  virtual void sync_warp(int first_thread, unsigned mask) = 0;
  virtual void float_atomic() = 0;
  /// @param from where in the code; null for what is not counted
  virtual void access(int thread, const void* at, int64_t bytes, Access how, const void* from) = 0;
};
inline Watcher* watcher = nullptr;

/// The thread of the block that runs; -1 outside of kernels.
int running_thread();
Memory memory_of(const void* p);
int64_t shared_offset(const void* p);
/// Tells a watcher of an access of the running thread.
void tell(const void* at, int64_t bytes, Access how, const void* from);

}  // namespace ladder::on_cpu
