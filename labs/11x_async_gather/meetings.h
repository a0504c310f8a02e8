// Which transfer of a sequence-parallel linear layer should hide behind which product.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

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

/// Lets a transfer of one rank and the product that it should hide behind wait for each other.
class Meetings : MeetingPlace {
 public:
  Meetings(SeenOfAll& seen, Wire wire) : MeetingPlace(seen, wire) {}

  /// To be called before the student's code. @param sequences of forward; 0 for backward
  void begin(int64_t sequences) {
    const std::lock_guard lock(mutex_);
    is_forward_ = sequences > 0;
    sides_ = {};
    side(Transfer::Next).meetings = std::max<int64_t>(sequences - 1, 0);
    side(Transfer::Again).meetings = side(Transfer::Sum).meetings = is_forward_ ? 0 : 1;
  }

  /// Runs a collective on the thread that communicates.
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
    travel(lock, body);
    ++s.ended;
    changed_.notify_all();
  }

  /// Runs a product on the rank's own thread.
  void product(Transfer what, const std::function<void()>& kernel) {
    std::unique_lock lock(mutex_);
    Side& s = side(what);
    const int64_t number = s.products++, transfer = number + first_of(what);
    if (number >= s.meetings) {
      lock.unlock();
      return kernel();
    }
    const char* late = "not started before its product";
    if (!is_slow()) {
      release(s, number);
      wait(lock, what, late, [&] { return s.ended > transfer; });
    }
    lock.unlock();
    kernel();
    lock.lock();
    if (is_slow()) {
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

  bool is_forward_ = true;
  std::array<Side, kTransfers.size()> sides_{};
};

/// Where products of this thread meet transfers. Null: they meet none.
inline thread_local Meetings* here = nullptr;

template <Transfer kTransfer>
void as_product(const std::function<void()>& kernel) {
  here ? here->product(kTransfer, kernel) : kernel();
}
inline Kernels kernels_that_meet() {
  Kernels table = kernels_of("cpu");
  let_meet<&Kernels::matmul_forward, as_product<Transfer::Next>>(table.matmul_forward);
  let_meet<&Kernels::matmul_backward_input, as_product<Transfer::Again>>(
      table.matmul_backward_input);
  let_meet<&Kernels::matmul_backward_weight, as_product<Transfer::Sum>>(
      table.matmul_backward_weight);
  return table;
}

}  // namespace ladder::lab
