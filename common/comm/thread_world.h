// ThreadWorld: what all ranks of run_threads() share: who waits, and how the run failed.
//
// One mutex guards everything here and in the groups (thread_group.cpp). This is enough, because
// operations are few and large, and tensors are copied without it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/call.h"
#include "common/comm/failure.h"
#include "common/comm/liveness.h"

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

  /// Blocks the thread of `rank` until ready(). If it waits too long for a rank that gives no sign
  /// of life, the run fails. If the run has failed, this throws Aborted instead. But it does not
  /// throw while busy(), when another rank is copying from or to this rank's memory. Lock held
  void wait(Lock& lock, int rank, const Call& call, const std::function<bool()>& ready,
            const std::function<bool()>& busy);
  /// Something happened that `rank` may be waiting for. Lock held
  void wake(int rank) { changed_[rank].notify_all(); }

  /// Ends the run: all that wait throw Aborted. The first failure is kept. Lock held
  void fail(Failure failure);
  /// Ends the run because `rank` does, which may be about to say why. Lock held
  void abandon(int rank);
  /// A fault of the program: fail(), and throws Aborted. Lock held
  [[noreturn]] void fail_here(const std::string& reason);
  bool failed() const { return failure_.has_value(); }  ///< Lock held
  /// @throws Aborted if the run has failed. Lock held
  void check_alive() const;

  /// Returns when ranks 0 to `started` - 1 have left. If one has stalled and all others have left,
  /// it ends the process, because nothing can end a thread.
  void wait_for_all(int started);
  /// Throws the first failure, if there is one, as RankFailed. After all threads are joined
  void rethrow() const;

 private:
  struct Waiter {
    std::thread::id thread;
    int rank;
    const Call* call;
    const std::function<bool()>* ready;
    int32_t looks = 0;
  };
  struct RankState {
    std::thread::id thread;
    bool left = false;
    std::optional<Pulse> pulse = {};
    int32_t silent = 0;  ///< looks since its last sign of life
  };
  const Waiter* waiter_of(int rank) const;
  void detect_deadlock();
  /// Looks for signs of life, unless another thread has just done so.
  void look();
  RankReport report(int rank);

  const Patience patience_;
  std::mutex mutex_;
  std::deque<std::condition_variable> changed_;  ///< by rank; a deque, because they cannot move
  std::vector<RankState> state_;                 ///< by rank
  std::vector<Waiter*> waiters_;
  std::chrono::steady_clock::time_point next_look_{};
  std::condition_variable left_;
  std::optional<Failure> failure_;
  bool cause_follows_ = false;  ///< failure_ is of abandon()
  bool stalled_ = false;        ///< failed, since a rank gives no sign of life
};

}  // namespace ladder
