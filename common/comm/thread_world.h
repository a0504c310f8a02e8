// ThreadWorld: what all ranks of run_threads() share: who waits, and how the run failed.
//
// One mutex guards everything here and in the groups (thread_group.cpp): operations are few and
// large, and tensors are copied outside of it.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/comm/call.h"

namespace ladder {

class ThreadWorld {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit ThreadWorld(int ranks) : changed_(ranks), state_(ranks) {}

  Lock lock() { return Lock(mutex_); }

  /// The calling thread is `rank` from here on, until leave().
  void enter(int rank);
  void leave(int rank);

  /// Blocks the thread of `rank` until ready(). If the run has failed, throws Aborted instead, but
  /// not while busy(): another rank is in the middle of a copy from or to this one's memory.
  /// Lock held
  void wait(Lock& lock, int rank, const Call& call, const std::function<bool()>& ready,
            const std::function<bool()>& busy);
  /// Something that `rank` may be waiting for has happened. Lock held
  void wake(int rank) { changed_[rank].notify_all(); }

  /// Ends the run: all that wait throw Aborted. The first error is kept; null: it will follow.
  /// Lock held
  void fail(std::exception_ptr error, std::string reason);
  /// fail() with a CheckError of that text, and throws Aborted. Lock held
  [[noreturn]] void fail_here(const std::string& reason);
  bool failed() const { return failed_; }  ///< Lock held
  /// @throws Aborted if the run has failed. Lock held
  void check_alive() const;

  /// Throws the first failure, if there is one. After all threads are joined
  void rethrow() const;

 private:
  struct Waiter {
    std::thread::id thread;
    int rank;
    const Call* call;
    const std::function<bool()>* ready;
  };
  struct RankState {
    std::thread::id thread;
    bool left = false;
  };
  const Waiter* waiter_of(int rank) const;
  void detect_deadlock();

  std::mutex mutex_;
  std::deque<std::condition_variable> changed_;  ///< by rank; a deque: they do not move
  std::vector<RankState> state_;                 ///< by rank
  std::vector<const Waiter*> waiters_;
  bool failed_ = false;
  std::string reason_;
  std::exception_ptr error_;
};

}  // namespace ladder
