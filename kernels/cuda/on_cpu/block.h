// A block of threads on the CPU: each thread is a fiber, and one runs until it has to wait for
// others. Which one runs next is drawn at random, so that code which needs an order that no
// barrier gives it goes wrong for some seed. In one half of all blocks the draw is even, in the
// other half warps have ranks: the first runs as far as it goes, the last is far behind.
//
// What a GPU leaves undefined is an error here, with the kernel, the block and the thread: a
// barrier that some threads do not reach, a shuffle that some lanes of its mask do not reach.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

#include "kernels/cuda/grid.h"

namespace ladder::on_cpu {

/// Where a call stands in the source: a kernel is known by its launch, a barrier by its line.
using Where = std::source_location;

constexpr int kLanes = 32;

/// What all lanes of a warp brought to one exchange; null for those outside of its mask.
using Lanes = std::array<void*, kLanes>;

/// Runs `kernel` once for each thread of each block: one block after the other, one launch at a
/// time in the whole process, whichever rank it is of. @throws what a thread threw; CheckError if
/// threads wait forever
void run_grid(Where where, const Grid& grid, int threads, int64_t shared_bytes,
              const std::function<void()>& kernel);

/// The order of threads and blocks follows from this and the number of launches since by the same
/// host thread, which may be a rank beside others; at the start it is $LADDER_ON_CPU_SEED, or 1.
void set_seed(uint64_t seed);

// ---- what device functions are made of; called by threads of a block ------------------------

/// Waits until every thread of the block is at this line.
void meet_block(Where where);

/// Waits until every lane of `mask` is at this line with the same mask; then one of them calls
/// exchange(lanes), where lanes[i] is what lane i passed as `mine`.
/// @throws CheckError if this lane is not of the mask
void meet_warp(const char* name, unsigned mask, void* mine, void (*exchange)(const Lanes&),
               Where where);

/// The place of this thread in its warp.
int lane_of_thread();

/// The block's dynamic shared memory.
void* dynamic_shared_memory();

/// @throws CheckError naming the thread and `what` unless [p, p + bytes) is shared memory and p
/// is a multiple of `bytes`
void check_shared(const void* p, int64_t bytes, const char* what);

/// Throws CheckError with the kernel, the block and the thread before `what`.
[[noreturn]] void fail(const std::string& what);

/// Copies of 16 bytes that land at once or when this thread waits for their group, as the draw has
/// it; null `from`: zeros.
void start_copy(void* to, const void* from);
void close_copy_group();
void land_copies(int pending_groups);

}  // namespace ladder::on_cpu
