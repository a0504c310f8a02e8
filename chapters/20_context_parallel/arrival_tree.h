// A sum that is a tree by index, although its terms arrive in any order.
//
// A term waits until its sibling has arrived. Then the two are joined, the lower one first, and
// their sum waits in turn. For example, 4 terms arrive as 2, 1, 0, 3:
//
//     2         waits
//     1         waits
//     0         0+1 waits
//     3         2+3, then (0+1)+(2+3)
//
// The bits are those of the tree, whatever the order of arrival. The price is memory for what
// waits. A sum in the order of arrival would need only two buffers, its own and that of the next
// term, but its bits would depend on the number of ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/check.h"

namespace ladder {

class ArrivalTree {
 public:
  ArrivalTree(int64_t terms, int64_t buffers)
      : terms_(terms),
        waiting_(static_cast<size_t>(2 * terms), kNone),
        used_(static_cast<size_t>(buffers)) {}

  /// A free buffer, for the next term.
  size_t take() {
    const auto free = std::ranges::find(used_, false);
    CHECK(free != used_.end(), "{} buffers for what waits of {} terms", used_.size(), terms_);
    *free = true;
    return static_cast<size_t>(free - used_.begin());
  }

  /// Term i is in `buffer`. Calls join(to, from) for each two buffers that become one. The sum goes
  /// into `to`, which holds the lower terms.
  template <class Join>
  void add(int64_t i, size_t buffer, Join&& join) {
    size_t node = static_cast<size_t>(terms_ + i);  // its parent is node / 2, the root 1
    for (; node > 1 && waiting_[node ^ 1] != kNone; node /= 2) {
      const size_t other = std::exchange(waiting_[node ^ 1], kNone);
      const auto [lower, upper] =
          node % 2 == 0 ? std::pair(buffer, other) : std::pair(other, buffer);
      join(lower, upper);
      used_[upper] = false;
      buffer = lower;
    }
    waiting_[node] = buffer;
  }

  /// The buffer of the sum, once all terms have arrived.
  size_t total() const {
    CHECK(waiting_[1] != kNone, "terms are missing of {}", terms_);
    return waiting_[1];
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  int64_t terms_;
  std::vector<size_t> waiting_;  ///< for each node: the buffer of a sum that waits for its sibling
  std::vector<bool> used_;
};

}  // namespace ladder
