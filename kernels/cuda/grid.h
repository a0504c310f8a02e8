// Grid: how many blocks of threads a kernel is started with.
#pragma once

#include <cstdint>

#include "kernels/check.h"

namespace ladder {

/// The blocks of a launch. blockIdx.x runs fastest.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
};

/// The limits of every GPU since 2012.
constexpr Grid kMaxGrid{.x = 0x7FFFFFFF, .y = 65535, .z = 65535};
constexpr int kMaxThreads = 1024;

/// @throws OutOfMemory if the grid has more blocks than any device takes, for example because there
/// are very many sequences
inline void check_grid(const Grid& grid) {
  if (grid.x > kMaxGrid.x || grid.y > kMaxGrid.y || grid.z > kMaxGrid.z)
    throw OutOfMemory(
        fmt::format("an operation takes {} x {} x {} blocks, and a device has up to {} x {} x {}",
                    grid.x, grid.y, grid.z, kMaxGrid.x, kMaxGrid.y, kMaxGrid.z));
}

/// @throws OutOfMemory if a block needs more shared memory than the `most` that it can have
inline void check_shared(int64_t bytes, int64_t most) {
  if (bytes > most)
    throw OutOfMemory(fmt::format(
        "a block of the device has {} bytes of shared memory, and an operation on heads or rows of "
        "so many channels takes {}",
        most, bytes));
}

}  // namespace ladder
