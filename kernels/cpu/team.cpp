#include "kernels/cpu/team.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <hwy/cache_control.h>

#include "kernels/context.h"

namespace ladder {
namespace {

/// The longest time that a thread spins. Waking a thread of a virtual machine takes about half of
/// it.
constexpr int64_t kMostNs = 100'000;

/// Whether `happened` becomes true before `end`.
template <class Happened>
bool happens_until(int64_t end, Happened happened) {
  constexpr int kLooksPerClock = 16;
  while (now_ns() < end)
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (happened()) return true;
      hwy::Pause();
    }
  return false;
}

}  // namespace

Team& Team::mine(int threads) {
  thread_local std::unique_ptr<Team> team;
  if (!team || team->threads() != threads) {
    team.reset();  // ends its threads before others start
    team = std::make_unique<Team>(threads);
  }
  return *team;
}

Team::Team(int threads) : errors_(static_cast<size_t>(threads)) {
  try {
    for (int thread = 1; thread < threads; ++thread)
      workers_.emplace_back([this, thread] { work(thread); });
  } catch (const std::exception&) {  // the system's limit, or no memory for a stack
    const size_t started = workers_.size() + 1;
    end();
    throw OutOfThreads(fmt::format("only {} of {} threads could be started", started, threads));
  }
}

Team::~Team() { end(); }

void Team::end() {
  job_ = {};
  start_job();
  for (std::thread& worker : workers_) worker.join();
}

void Team::start_job() {
  working_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  jobs_.fetch_add(1, std::memory_order_release);
  wake(new_job_);
}

// A thread that is about to sleep holds the mutex from its last look until it sleeps.
void Team::wake(std::condition_variable& sleepers) {
  { const std::lock_guard lock(falling_asleep_); }
  sleepers.notify_all();
}

template <class Happened>
void Team::await(int64_t& patience, std::condition_variable& wakes, Happened happened) {
  const int64_t begin = now_ns();
  if (!happens_until(begin + patience, happened)) {
    std::unique_lock lock(falling_asleep_);
    wakes.wait(lock, happened);
  }
  const bool in_vain = now_ns() - begin > kMostNs;
  patience = in_vain ? patience / 2 : std::min(kMostNs, patience + kMostNs / 64);
}

void Team::run_job() {
  start_job();
  call_job(0);
  await(patience_, all_done_, [this] { return working_.load(std::memory_order_acquire) == 0; });
  const auto first = std::find_if(errors_.begin(), errors_.end(),
                                  [](const std::exception_ptr& error) { return error != nullptr; });
  if (first == errors_.end()) return;
  const std::exception_ptr error = *first;
  std::fill(errors_.begin(), errors_.end(), nullptr);
  std::rethrow_exception(error);
}

void Team::call_job(int thread) {
  try {
    job_.call(job_.f, thread);
  } catch (...) {
    errors_[static_cast<size_t>(thread)] = std::current_exception();
  }
}

void Team::work(int thread) {
  int64_t patience = 0;
  for (uint32_t seen = 0;; ++seen) {
    await(patience, new_job_, [&] { return jobs_.load(std::memory_order_acquire) != seen; });
    if (!job_.call) return;
    call_job(thread);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) wake(all_done_);
  }
}

}  // namespace ladder
