#include "common/comm/thread_world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ranges>

#include "common/comm/comm.h"

namespace ladder {

void ThreadWorld::enter(int rank) {
  const Lock lock(mutex_);
  state_[rank].thread = std::this_thread::get_id();
  state_[rank].pulse.emplace();
}

void ThreadWorld::leave(int rank) {
  const Lock lock(mutex_);
  state_[rank].left = true;
  left_.notify_all();
  detect_deadlock();
}

void ThreadWorld::wait(Lock& lock, int rank, const Call& call, const std::function<bool()>& ready,
                       const std::function<bool()>& busy) {
  Waiter me{std::this_thread::get_id(), rank, &call, &ready};
  waiters_.push_back(&me);
  detect_deadlock();
  const auto over = [&] { return ready() || (failed() && !busy()); };
  while (!changed_[rank].wait_for(lock, patience_.between, over)) look();
  std::erase(waiters_, &me);
  if (!ready()) check_alive();
}

void ThreadWorld::fail(Failure failure) {
  if (failed() && !cause_follows_) return;
  cause_follows_ = false;
  failure_ = std::move(failure);
  for (std::condition_variable& changed : changed_) changed.notify_all();
}

void ThreadWorld::abandon(int rank) {
  if (failed()) return;
  fail({fmt::format("internal error: rank {} has ended while a job of its own was under way: "
                    "nobody waited for the job's Pending",
                    rank),
        1});
  cause_follows_ = true;
}

void ThreadWorld::fail_here(const std::string& reason) {
  fail({"internal error: " + reason, 1});
  throw Aborted(failure_->line);
}

void ThreadWorld::check_alive() const {
  if (failed()) throw Aborted(failure_->line);
}

void ThreadWorld::look() {
  const auto now = std::chrono::steady_clock::now();
  if (failed() || now < next_look_ || under_debugger()) return;
  next_look_ = now + patience_.between;
  for (Waiter* waiter : waiters_) ++waiter->looks;
  std::vector<RankReport> all;
  for (int rank = 0; rank < static_cast<int>(state_.size()); ++rank) all.push_back(report(rank));
  const auto reason = reason_to_give_up(all, static_cast<int>(all.size()), patience_);
  if (!reason) return;
  stalled_ = true;
  fail({"error: " + *reason, 1});
  left_.notify_all();
}

RankReport ThreadWorld::report(int rank) {
  RankState& state = state_[rank];
  RankReport report{.rank = rank, .over = state.left};
  for (const Waiter* waiter : waiters_) {
    if (waiter->rank != rank || waiter->looks <= report.waited) continue;
    report.waited = waiter->looks;
    report.set_call(to_string(*waiter->call));
  }
  const bool lives = state.left || report.waited > 0 || !state.pulse || state.pulse->beats();
  report.silent = state.silent = lives ? 0 : state.silent + 1;
  return report;
}

void ThreadWorld::wait_for_all(int started) {
  Lock lock(mutex_);
  const auto is_here = [&](int rank) { return !state_[rank].left; };
  const auto all_left = [&] { return std::ranges::none_of(std::views::iota(0, started), is_here); };
  const auto others_left = [&] {
    return std::ranges::none_of(std::views::iota(0, started), [&](int rank) {
      return is_here(rank) && state_[rank].silent < patience_.looks;
    });
  };
  left_.wait(lock, [&] { return all_left() || (stalled_ && others_left()); });
  // Every thread that wakes up after this finds that the run has failed.
  if (left_.wait_for(lock, std::chrono::seconds(1), all_left)) return;
  tell(failure_->line);
  std::fflush(nullptr);
  std::_Exit(failure_->status);
}

void ThreadWorld::rethrow() const {
  if (failed()) throw RankFailed(*failure_);
}

const ThreadWorld::Waiter* ThreadWorld::waiter_of(int rank) const {
  for (const Waiter* waiter : waiters_)
    if (waiter->rank == rank && waiter->thread == state_[rank].thread) return waiter;
  return nullptr;
}

// A rank's own thread waits only for other ranks' own threads, because a second thread of a rank
// has its own group. So if all own threads wait in vain, or are gone, nothing will ever happen.
void ThreadWorld::detect_deadlock() {
  if (failed()) return;
  std::string report;
  bool anybody = false;
  for (int rank = 0; rank < static_cast<int>(state_.size()); ++rank) {
    const Waiter* waiter = waiter_of(rank);
    if (!state_[rank].left && (!waiter || (*waiter->ready)())) return;
    report += fmt::format("; rank {} {}", rank,
                          waiter ? "waits in " + to_string(*waiter->call) : "has returned");
    anybody = anybody || waiter;
  }
  if (!anybody) return;
  fail({"internal error: the ranks wait for each other" + report, 1});
}

}  // namespace ladder
