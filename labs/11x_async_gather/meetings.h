// Transfers and the products that they should hide behind: each waits for the other, so that it
// shows which of them comes too late.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/comm/comm.h"
#include "common/run/backend.h"
#include "kernels/kernels.h"

namespace ladder::lab {

constexpr std::chrono::milliseconds kHeld{500};  // then a transfer or a product goes on alone
constexpr std::chrono::milliseconds kOnWire{2};  // what a transfer takes on a slow wire

/// What should hide behind a product.
enum class Transfer : uint8_t {
  Next,   ///< forward: the gather of the next sequence, behind the product of this one
  Again,  ///< backward: the gather of the input, behind the product that makes its gradient
  Sum,    ///< backward: the sum of that gradient, behind the product that makes the weights'
};
constexpr std::array kTransfers{"gather of the next sequence", "gather in backward",
                                "sum in backward"};

constexpr const char* kUnderWay = "under way during its product";

/// What was seen of one kind of transfer, in all cases and on all ranks. What has been found wrong
/// once is not waited for again.
struct Seen {
  std::atomic<bool> met{false};             ///< under way during its product, once at least
  std::atomic<const char*> wrong{nullptr};  ///< what was wrong first; null: nothing

  const char* verdict() const {
    const char* first = wrong;
    return first ? first : met ? kUnderWay : "not seen";
  }
};
using SeenOfAll = std::array<Seen, kTransfers.size()>;

/// A slow transfer ends after its product, a fast one before the product reads anything. What must
/// be waited for and is not shows with the one, and memory that is written too early with the
/// other.
enum class Wire : uint8_t { Slow, Fast };

/// Lets a transfer of one rank and the product that it should hide behind wait for each other. If
/// the one does not come, the other goes on after a while, and knows what is wrong.
class Meetings {
 public:
  Meetings(SeenOfAll& seen, Wire wire) : seen_(seen), wire_(wire) {}

  /// The student's code is called. @param sequences of forward; 0: backward
  void begin(int64_t sequences) {
    const std::lock_guard lock(mutex_);
    is_forward_ = sequences > 0;
    sides_ = {};
    side(Transfer::Next).meetings = std::max<int64_t>(sequences - 1, 0);
    side(Transfer::Again).meetings = side(Transfer::Sum).meetings = is_forward_ ? 0 : 1;
  }

  /// A collective of the thread that communicates.
  void transfer(Operation operation, const std::function<void()>& body) {
    std::unique_lock lock(mutex_);
    const Transfer what = is_forward_                         ? Transfer::Next
                          : operation == Operation::AllGather ? Transfer::Again
                                                              : Transfer::Sum;
    Side& s = side(what);
    const int64_t product = s.begun++ - first_of(what);
    changed_.notify_all();
    if (product >= 0 && product < s.meetings)
      wait(lock, what, "waited for before its product", [&] { return s.released > product; });
    lock.unlock();
    if (wire_ == Wire::Slow) std::this_thread::sleep_for(kOnWire);
    body();
    lock.lock();
    ++s.ended;
    changed_.notify_all();
  }

  /// A product of the rank's own thread.
  void product(Transfer what, const std::function<void()>& kernel) {
    std::unique_lock lock(mutex_);
    Side& s = side(what);
    const int64_t number = s.products++, transfer = number + first_of(what);
    if (number >= s.meetings) {
      lock.unlock();
      return kernel();
    }
    const char* late = "not started before its product";
    if (wire_ == Wire::Fast) {
      release(s, number);
      wait(lock, what, late, [&] { return s.ended > transfer; });
    }
    lock.unlock();
    kernel();
    lock.lock();
    if (wire_ == Wire::Slow) {
      wait(lock, what, late, [&] { return s.begun > transfer; });
      release(s, number);
    }
  }

 private:
  struct Side {
    int64_t meetings = 0;  ///< products that have a transfer to hide
    int64_t begun = 0, ended = 0;
    int64_t products = 0, released = 0;
  };

  Side& side(Transfer what) { return sides_[static_cast<size_t>(what)]; }
  /// The transfer that the first product hides: nothing hides the gather of the first sequence.
  static int64_t first_of(Transfer what) { return what == Transfer::Next ? 1 : 0; }

  void release(Side& s, int64_t product) {
    s.released = std::max(s.released, product + 1);
    changed_.notify_all();
  }

  template <class Met>
  void wait(std::unique_lock<std::mutex>& lock, Transfer what, const char* otherwise, Met&& met) {
    Seen& seen = seen_[static_cast<size_t>(what)];
    if (seen.wrong) return;
    const char* none = nullptr;
    if (changed_.wait_for(lock, kHeld, met))
      seen.met = true;
    else
      seen.wrong.compare_exchange_strong(none, otherwise);
  }

  SeenOfAll& seen_;
  Wire wire_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_forward_ = true;
  std::array<Side, kTransfers.size()> sides_{};
};

/// Where products of this thread meet transfers; null: they do not.
inline thread_local Meetings* here = nullptr;

template <auto kKernel, Transfer kTransfer, class... More>
void let_meet(void (*&entry)(const Ctx&, Tensor, More...)) {
  entry = [](const Ctx& ctx, Tensor out, More... more) {
    const auto kernel = [&] { (kernels_of("cpu").*kKernel)(ctx, out, more...); };
    here ? here->product(kTransfer, kernel) : kernel();
  };
}
inline Kernels kernels_that_meet() {
  Kernels table = kernels_of("cpu");
  let_meet<&Kernels::matmul_forward, Transfer::Next>(table.matmul_forward);
  let_meet<&Kernels::matmul_backward_input, Transfer::Again>(table.matmul_backward_input);
  let_meet<&Kernels::matmul_backward_weight, Transfer::Sum>(table.matmul_backward_weight);
  return table;
}

/// Messages, and collectives that meet products.
class MeetingComm : public Comm {
 public:
  MeetingComm(Comm& comm, Meetings& meetings)
      : Comm(comm.rank(), comm.size()), comm_(comm), meetings_(meetings) {}
  std::string_view kind() const override { return "meeting"; }
  void abandon() noexcept override { comm_.abandon(); }

 private:
  void perform(const Call& call, const std::function<void()>& body) override {
    meetings_.transfer(call.operation, body);
  }
  Pending do_isend(Tensor data, int to) override { return comm_.isend(data, to); }
  Pending do_irecv(Tensor data, int from) override { return comm_.irecv(data, from); }
  std::unique_ptr<Comm> do_split(int color, int key) override {
    parts_.push_back(comm_.split(color, key));
    return std::make_unique<MeetingComm>(*parts_.back(), meetings_);
  }

  [[noreturn]] static void refuse() {
    throw CheckError("a collective of Comm was called; this lab takes those of Reducer");
  }
  void do_all_reduce(Tensor, Combine) override { refuse(); }
  void do_reduce_scatter(Tensor, Tensor, Combine) override { refuse(); }
  void do_all_gather(Tensor, Tensor) override { refuse(); }
  void do_broadcast(Tensor, int) override { refuse(); }
  void do_all_to_all(Tensor, Tensor) override { refuse(); }
  void do_barrier() override { refuse(); }

  Comm& comm_;
  Meetings& meetings_;
  std::vector<std::unique_ptr<Comm>> parts_;
};

}  // namespace ladder::lab
