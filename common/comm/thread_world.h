// ThreadWorld: what all ranks of run_threads() share: who waits, and how the run failed.
//
// One mutex guards everything here and in the groups (thread_comm.cpp). This is enough, because
// operations are few and large, and tensors are copied without it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/call.h"
#include "common/comm/failure.h"
#include "common/comm/patience.h"

namespace ladder {

class ThreadWorld {
 public:
  using Lock = std::unique_lock<std::mutex>;

  ThreadWorld(int ranks, const Patience& patience)
      : patience_(patience), changed_(ranks), state_(ranks) {}

  Lock lock() { return Lock(mutex_); }

  /// From here on the calling thread is `rank`, until leave().
  void enter(int rank);
  void leave(int rank);

  /// Blocks the thread of `rank` until ready(). If it waits too long, the run fails. If the run has
  /// failed, this throws Aborted instead. But it does not throw while busy(), when another rank is
  /// copying from or to this rank's memory. Lock held
  void wait(Lock& lock, int rank, const Call& call, const std::function<bool()>& ready,
            const std::function<bool()>& busy);
  /// Something happened that `ranks` may be waiting for: wakes those that can go on. Unlocks `lock`
  /// first, because a rank that wakes needs it.
  void wake(Lock& lock, const std::vector<int>& ranks);

  /// Ends the run: all that wait throw Aborted. The first failure is kept. Lock held
  void fail(Failure failure);
  /// Ends the run because `rank` ends. A fail() that follows tells the cause, and counts instead.
  /// Lock held
  void abandon(int rank);
  /// A fault of the program: fail(), and throws Aborted. Lock held
  [[noreturn]] void fail_here(const std::string& reason);
  bool failed() const { return failure_.has_value(); }  ///< Lock held
  /// @throws Aborted if the run has failed. Lock held
  void check_alive() const;

  /// Returns when ranks 0 to `started` - 1 have left. If one does not after others have waited too
  /// long, it ends the process, because nothing can end a thread.
  void wait_for_all(int started);
  /// Throws the first failure, if there is one, as RankFailed. After all threads are joined
  void rethrow() const;

 private:
  /// A thread that waits.
  struct Waiter {
    std::thread::id thread;
    int rank;
    const Call& call;
    const std::function<bool()>& ready;
  };
  struct RankState {
    std::thread::id thread;
    bool left = false;
  };
  /// The rank's own thread, if it waits.
  const Waiter* waiter_of(int rank) const;
  void detect_deadlock();
  /// The run fails, because `waiter` has waited too long.
  void time_out(const Waiter& waiter);
  /// "; rank 1 waits in barrier; rank 2 is in no call": all ranks but `but`.
  std::string who_waits(int but = -1) const;

  const Patience patience_;
  std::mutex mutex_;
  std::deque<std::condition_variable> changed_;  ///< by rank; a deque, because they cannot move
  std::vector<RankState> state_;                 ///< by rank
  std::vector<Waiter*> waiters_;
  std::condition_variable left_;
  std::optional<Failure> failure_;
  bool cause_follows_ = false;  ///< failure_ is of abandon()
  bool timed_out_ = false;      ///< failure_ is of time_out()
};

}  // namespace ladder
