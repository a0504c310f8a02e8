// Team: threads that work on one thing at a time together, and wait for the next.
//
// An operation of a small model takes less time than it takes to wake a thread. So whoever waits
// watches for at most 100 microseconds first, and sleeps afterwards, because on a machine with
// other work the thread that it waits for may need the very core on which it watches. There waits
// are long: after one that was longer, a thread sleeps at once, and gets back its patience little
// by little, with every short wait.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ladder {

/// The machine, or a limit of whoever started the program, does not let so many threads start.
class OutOfThreads : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Team {
 public:
  /// The team of the calling thread, which is one of its `threads`. It is kept for the next call: a
  /// rank has one. @throws OutOfThreads
  static Team& mine(int threads);

  explicit Team(int threads);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  int threads() const { return static_cast<int>(errors_.size()); }

  /// Calls f(thread) on each thread, 0 the caller, and waits for all.
  /// @throws what f threw, on the thread of the lowest number if on several
  template <class F>
  void run(F& f) {
    job_ = {[](void* with, int thread) { (*static_cast<F*>(with))(thread); }, &f};
    run_job();
  }

 private:
  /// A call of f, whatever its type.
  struct Job {
    void (*call)(void* f, int thread) = nullptr;  ///< null: there is no more to do
    void* f = nullptr;
  };
  void run_job();
  void start_job();
  void wake(std::condition_variable& sleepers);
  template <class Happened>
  void await(int64_t& patience, std::condition_variable& wakes, Happened happened);
  void end();
  void call_job(int thread);
  void work(int thread);

  Job job_;
  alignas(64) std::atomic<uint32_t> jobs_ = 0;  ///< started so far: what workers wait for
  alignas(64) std::atomic<int> working_ = 0;    ///< workers whose part is not done
  int64_t patience_ = 0;  ///< of the caller, in nanoseconds: how long it watches
  std::mutex falling_asleep_;
  std::condition_variable new_job_, all_done_;
  std::vector<std::exception_ptr> errors_;  ///< of each thread's part
  std::vector<std::thread> workers_;
};

}  // namespace ladder
