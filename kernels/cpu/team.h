// Team: threads that do one job at a time together, and then wait for the next job.
//
// An operation of a small model takes less time than waking a thread. So a waiting thread first
// spins, for at most 100 microseconds, and only then sleeps. It must not spin longer: on a busy
// machine the thread that it waits for may need its core. Waits are long on such a machine. After a
// wait of more than 100 microseconds, a thread spins half as long the next time, and after some
// such waits it sleeps at once. Every short wait lets it spin a little longer again. (One long wait
// says little: a program that writes text has one at each token, while the token is drawn.)
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

/// So many threads cannot be started: the machine, or a limit on this program, forbids it.
class OutOfThreads : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Team {
 public:
  /// The team of the calling thread, which is one of its `threads` threads. It is kept for the next
  /// call: one per rank. @throws OutOfThreads
  static Team& mine(int threads);

  explicit Team(int threads);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  int threads() const { return static_cast<int>(errors_.size()); }

  /// Calls f(thread) on each thread, and waits for all. The caller is thread 0.
  /// @throws what f threw; if it threw on several threads, what it threw on the lowest
  template <class F>
  void run(F& f) {
    job_ = {[](void* with, int thread) { (*static_cast<F*>(with))(thread); }, &f};
    run_job();
  }

 private:
  /// A call of f, whatever type f has.
  struct Job {
    void (*call)(void* f, int thread) = nullptr;  ///< null: the threads are to end
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
  alignas(64) std::atomic<uint32_t> jobs_ = 0;  ///< how many were started: what workers wait for
  alignas(64) std::atomic<int> working_ = 0;    ///< how many workers have not finished their part
  int64_t patience_ = 0;  ///< of the caller, in nanoseconds: how long it spins
  std::mutex falling_asleep_;
  std::condition_variable new_job_, all_done_;
  std::vector<std::exception_ptr> errors_;  ///< what each thread's part threw
  std::vector<std::thread> workers_;
};

}  // namespace ladder
