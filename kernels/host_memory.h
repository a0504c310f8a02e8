// How much memory the machine has left.
#pragma once

#include <cstdint>

namespace ladder {

/// Bytes that this process can still fill: what the system calls available, plus swap, or less if
/// its container has a lower limit. Some systems promise more memory than they have. Such a system
/// refuses nothing when memory is asked for; it ends the process with SIGKILL when memory is
/// filled.
int64_t host_memory_left();

}  // namespace ladder
