// Which transfer of a sequence-parallel linear layer should hide behind which product.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "common/run/backend.h"
#include "kernels/kernels.h"
#include "labs/meetings.h"

namespace ladder::lab {

/// What should hide behind a product.
enum class Transfer : uint8_t {
  Next,   ///< forward: the gather of the next sequence, behind the product of this one
  Again,  ///< backward: the gather of the input, behind the product that makes its gradient
  Sum,    ///< backward: the sum of that gradient, behind the product that makes the weights'
};
constexpr std::array kTransfers{"gather of the next sequence", "gather in backward",
                                "sum in backward"};

using SeenOfAll = std::array<Seen, kTransfers.size()>;

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

}  // namespace ladder::lab
