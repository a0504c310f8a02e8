#include "common/comm/thread_world.h"

#include "common/comm/comm.h"

namespace ladder {

void ThreadWorld::enter(int rank) {
  const Lock lock(mutex_);
  state_[rank].thread = std::this_thread::get_id();
}

void ThreadWorld::leave(int rank) {
  const Lock lock(mutex_);
  state_[rank].left = true;
  detect_deadlock();
}

void ThreadWorld::wait(Lock& lock, int rank, const Call& call, const std::function<bool()>& ready,
                       const std::function<bool()>& busy) {
  const Waiter me{std::this_thread::get_id(), rank, &call, &ready};
  waiters_.push_back(&me);
  detect_deadlock();
  changed_[rank].wait(lock, [&] { return ready() || (failed_ && !busy()); });
  std::erase(waiters_, &me);
  if (!ready()) check_alive();
}

void ThreadWorld::fail(std::exception_ptr error, std::string reason) {
  if (!error_) error_ = std::move(error);
  if (failed_) return;
  failed_ = true;
  reason_ = std::move(reason);
  for (std::condition_variable& changed : changed_) changed.notify_all();
}

void ThreadWorld::fail_here(const std::string& reason) {
  fail(std::make_exception_ptr(CheckError(reason)), reason);
  throw Aborted(reason_);
}

void ThreadWorld::check_alive() const {
  if (failed_) throw Aborted(reason_);
}

void ThreadWorld::rethrow() const {
  if (error_) std::rethrow_exception(error_);
  CHECK(!failed_, "{}", reason_);
}

const ThreadWorld::Waiter* ThreadWorld::waiter_of(int rank) const {
  for (const Waiter* waiter : waiters_)
    if (waiter->rank == rank && waiter->thread == state_[rank].thread) return waiter;
  return nullptr;
}

// A rank's own thread waits only for other ranks' own threads: a second thread of a rank has a
// group of its own. So if every one of them waits in vain, or is gone, nothing will ever happen.
void ThreadWorld::detect_deadlock() {
  if (failed_) return;
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
  const std::string reason = "the ranks wait for each other" + report;
  fail(std::make_exception_ptr(CheckError(reason)), reason);
}

}  // namespace ladder
