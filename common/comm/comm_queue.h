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

/// Runs jobs one after another, in the order in which they were given, as a stream on a GPU does.
/// All ranks give the same jobs in the same order.
///
///   const std::unique_ptr<Comm> beside = comm.split(0, comm.rank());
///   Collectives collectives(*beside, ...);   // with a Ctx of its own
///   CommQueue queue(*beside);
///   Pending pending = queue.run([=, &collectives] { collectives.all_reduce(bucket); });
///   ... computes, but leaves the bucket alone ...
///   pending.wait();
///
/// With a device: the thread has a device of its own. The Collectives's Ctx names that device,
/// `beside` is attached to it, and each job begins with its use_here(). Kernels that compute the
/// bucket must have ended before run(): ctx.synchronize(). Work that a job queues has ended before
/// wait() returns.
class CommQueue {
 public:
  /// @param comm only the jobs use it
  explicit CommQueue(Comm& comm) : comm_(comm), thread_([this] { work(); }) {}
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;
  /// Every job must have been waited for. Otherwise the rank is failing, and abandons its
  /// communication.
  ~CommQueue();

  /// wait() of the result throws what the job threw. After that no job runs, and each throws the
  /// same. Otherwise a later job's messages would meet peers that still expect those of the job
  /// that failed.
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
  std::exception_ptr failed_;  ///< what the first failed job threw; used by the thread only
  bool running_ = false;
  bool closed_ = false;
  std::jthread thread_;  ///< last, because it uses all of the above
};

}  // namespace ladder
