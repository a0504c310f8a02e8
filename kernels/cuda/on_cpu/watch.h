// What kernels do with memory, access by access. A .cu file that is compiled with -fsanitize=thread
// calls a function at each access that is not a register's; watch.cpp has these functions in place
// of the sanitizer's library. Link ladder_cuda_watched.
//
// A race is found by order, not by luck: two threads touch a byte, one of them writes, and no
// barrier is between. So the order that the stand-in has drawn does not matter. A shuffle is no
// barrier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ladder::on_cpu {

struct Watched {
  std::vector<std::string> races;  ///< the first ones; each pair of threads once
  int64_t race_count = 0;
  int64_t bytes_read = 0;  ///< of device memory, in sectors of 32 bytes: what a warp's access moves
  int64_t bytes_written = 0;
  int64_t shared_turns = 0;  ///< of shared memory: a bank gives one word a turn, so an access of a
                             ///< warp takes as many as its busiest bank has words to give
  int64_t bank_conflicts = 0;  ///< those turns that conflicts add
  int64_t float_atomics = 0;   ///< sums of floats whose order nobody knows
  int64_t forbidden = 0;       ///< accesses of what forbid() names
};

/// Accesses of these bytes of device memory count from now on, such as what lies behind a tensor;
/// with 0 bytes no longer.
void forbid(const void* begin, int64_t bytes);

/// What was seen since the last call.
Watched take_watched();

}  // namespace ladder::on_cpu
