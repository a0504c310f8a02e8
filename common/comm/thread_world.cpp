#include "common/comm/thread_world.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ranges>

#include "common/comm/comm.h"

namespace ladder {

void ThreadWorld::enter(int rank) {
  const Lock lock(mutex_);
  state_[rank].thread = std::this_thread::get_id();
}

void ThreadWorld::leave(int rank) {
  const Lock lock(mutex_);
  state_[rank].left = true;
  left_.notify_all();
  detect_deadlock();
}

void ThreadWorld::wait(Lock& lock, int rank, const Call& call, const std::function<bool()>& ready,
                       const std::function<bool()>& busy) {
  const auto over = [&] { return ready() || (failed() && !busy()); };
  if (!over()) {
    Waiter me{std::this_thread::get_id(), rank, call, ready};
    waiters_.push_back(&me);
    detect_deadlock();
    for (int looks = 0; !changed_[rank].wait_for(lock, patience_.between, over);)
      if (++looks == patience_.looks) time_out(me);
    std::erase(waiters_, &me);
  }
  if (!ready()) check_alive();
}

void ThreadWorld::wake(Lock& lock, const std::vector<int>& ranks) {
  std::vector<int> awake;
  for (const int rank : ranks)
    if (std::ranges::any_of(waiters_, [&](const Waiter* waiter) {
          return waiter->rank == rank && (failed() || waiter->ready());
        }))
      awake.push_back(rank);
  lock.unlock();
  for (const int rank : awake) changed_[rank].notify_all();
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

void ThreadWorld::wait_for_all(int started) {
  Lock lock(mutex_);
  const auto all_left = [&] {
    return std::ranges::all_of(state_ | std::views::take(started), &RankState::left);
  };
  left_.wait(lock, [&] { return all_left() || timed_out_; });
  // Whoever waits finds within this time that the run has failed.
  if (left_.wait_for(lock, std::chrono::seconds(3), all_left)) return;
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
  bool anybody = false;
  for (int rank = 0; rank < static_cast<int>(state_.size()); ++rank) {
    const Waiter* waiter = waiter_of(rank);
    if (!state_[rank].left && (!waiter || waiter->ready())) return;
    anybody = anybody || waiter;
  }
  if (anybody) fail({"internal error: the ranks wait for each other" + who_waits(), 1});
}

void ThreadWorld::time_out(const Waiter& waiter) {
  if (failed()) return;
  fail({fmt::format("error: rank {}: waited {} in {}{}; --timeout sets how long ranks wait",
                    waiter.rank, patience_.text(), to_string(waiter.call), who_waits(waiter.rank)),
        1});
  timed_out_ = true;
  left_.notify_all();
}

std::string ThreadWorld::who_waits(int but) const {
  std::string text;
  for (int rank = 0; rank < static_cast<int>(state_.size()); ++rank) {
    if (rank == but) continue;
    const Waiter* waiter = waiter_of(rank);
    const auto any = std::ranges::find(waiters_, rank, &Waiter::rank);
    if (!waiter && any != waiters_.end()) waiter = *any;  // it communicates for the rank
    text += fmt::format("; rank {} ", rank);
    if (waiter)
      text += "waits in " + to_string(waiter->call);
    else
      text += state_[rank].left ? "has returned" : "is in no call";
  }
  return text;
}

}  // namespace ladder
