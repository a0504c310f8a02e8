// CommQueue: a thread that communicates for a rank while the rank computes.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "common/comm/comm.h"

namespace ladder {

/// Runs jobs one after another, in the order in which they are given: what a stream is on a GPU.
/// All ranks give the same jobs in the same order.
///
///   const std::unique_ptr<Comm> beside = comm.split(0, comm.rank());
///   Reducer reducer(*beside, ...);   // with a Ctx of its own
///   CommQueue queue(*beside);
///   Pending pending = queue.run([&] { reducer.all_reduce(bucket); });
///   ... computes, but leaves the bucket alone ...
///   pending.wait();
///
/// On a device: the thread has one of its own, which the Reducer's Ctx names and `beside` is
/// attached to; each job begins with its use_here(). What computes the bucket has ended before
/// run(): ctx.synchronize(). What a job queues has ended before wait() returns.
class CommQueue {
 public:
  /// @param comm that the jobs use, and nobody else beside them
  explicit CommQueue(Comm& comm) : comm_(comm), thread_([this] { work(); }) {}
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;
  /// Every job has been waited for. Otherwise the rank is failing, and abandons what it
  /// communicates.
  ~CommQueue();

  /// wait() of the result throws what the job threw. After that no job runs, and each throws the
  /// same: what it sent would meet what the peers still expect of the one that failed.
  Pending run(std::function<void()> body);

 private:
  struct Job {
    std::function<void()> body;
    std::promise<void> done;
  };
  void work();

  Comm& comm_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::exception_ptr failed_;  ///< of the first job that threw; the thread's own
  bool running_ = false;
  bool closed_ = false;
  std::jthread thread_;  ///< last: it uses all of the above
};

}  // namespace ladder
