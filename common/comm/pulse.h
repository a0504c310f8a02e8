// Signs of life, seen from outside. They tell a slow rank from one that has stalled.
#pragma once

#include <cstdint>
#include <ctime>

namespace ladder {

/// Whether a thread does anything. It computes if it uses a core or waits for one. It may also wait
/// for a file, as when it saves a checkpoint, or for the reader of what it prints. A thread that
/// sleeps, or blocks on a lock, gives no sign of life.
class Pulse {
 public:
  /// The pulse of the calling thread.
  Pulse();
  /// Whether there was a sign of life since the last call. True if the system does not tell.
  bool beats();

 private:
  int thread_;
  clockid_t clock_{};
  int64_t used_ns_ = 0;
};

/// Whether a debugger holds this process. If so, ranks that wait are patient.
bool under_debugger();

}  // namespace ladder
