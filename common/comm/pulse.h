// Signs of life, seen from outside: what tells a rank that takes long from one that has stalled.
#pragma once

#include <cstdint>
#include <ctime>

namespace ladder {

/// Whether a thread does anything. It computes if it uses a core, or waits for one; it may wait for
/// a file, as when it saves a checkpoint, or for whoever reads what it prints. A thread that
/// sleeps, or blocks on a lock, gives no sign of life.
class Pulse {
 public:
  /// Of the calling thread.
  Pulse();
  /// Since the last call. True, too, where the system does not tell.
  bool beats();

 private:
  int thread_;
  clockid_t clock_{};
  int64_t used_ns_ = 0;
};

/// Whether a debugger holds this process: then who waits is patient.
bool under_debugger();

}  // namespace ladder
