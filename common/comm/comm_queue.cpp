#include "common/comm/comm_queue.h"

namespace ladder {
namespace {

class Queued : public Pending::Work {
 public:
  explicit Queued(std::future<void> result) : result_(std::move(result)) {}
  void wait() override { result_.get(); }

 private:
  std::future<void> result_;
};

}  // namespace

CommQueue::~CommQueue() {
  bool under_way = false;
  {
    const std::lock_guard lock(mutex_);
    under_way = running_ || !jobs_.empty();
    jobs_.clear();
    closed_ = true;
  }
  if (under_way) comm_.abandon();
  changed_.notify_one();
}

Pending CommQueue::run(std::function<void()> body) {
  Job job{std::move(body), {}};
  auto work = std::make_unique<Queued>(job.done.get_future());
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return Pending(std::move(work));
}

void CommQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
    if (closed_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    running_ = true;
    lock.unlock();
    try {
      if (!failed_) {
        if (comm_.device()) comm_.device()->use_here();
        job.body();
        if (comm_.device()) comm_.device()->synchronize();
      }
    } catch (...) {
      failed_ = std::current_exception();
    }
    lock.lock();
    running_ = false;
    // Last, because whoever waits for it may close the queue.
    failed_ ? job.done.set_exception(failed_) : job.done.set_value();
  }
}

}  // namespace ladder
