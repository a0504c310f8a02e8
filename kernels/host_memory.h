// What the machine still has of memory.
#pragma once

#include <cstdint>

namespace ladder {

/// Bytes that this process can still fill: what the system calls available, and swap; less where
/// its container may have less. A system that promises more than it has says nothing of it when
/// memory is asked for, and ends the process with SIGKILL when it is filled.
int64_t host_memory_left();

}  // namespace ladder
