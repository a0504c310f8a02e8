// Grid: how many blocks of threads a kernel is started with.
#pragma once

#include <cstdint>

namespace ladder {

/// Blocks of a launch; blockIdx.x runs fastest.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
};

/// The limits of every GPU since 2012, which launch() holds a Grid against.
constexpr Grid kMaxGrid{.x = 0x7FFFFFFF, .y = 65535, .z = 65535};
constexpr int kMaxThreads = 1024;

}  // namespace ladder
