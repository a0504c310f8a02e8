// A sum as a tree by index, whose leaves come in any order.
//
// A leaf waits until its sibling is there; then the two are joined, the lower one first, and their
// sum waits in turn. With 4 leaves that come as 2, 1, 0, 3:
//
//     2         waits
//     1         waits
//     0         0+1 waits
//     3         2+3, then (0+1)+(2+3)
//
// Whatever the order, the bits are those of the tree. The price is memory for what waits: adding up
// in the order of arrival would take one buffer, and have other bits on every number of ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ladder {

class ArrivalTree {
 public:
  explicit ArrivalTree(int64_t leaves)
      : leaves_(leaves), waiting_(static_cast<size_t>(2 * leaves), kNone) {}

  /// A buffer in which nothing waits, for the next leaf.
  size_t take() {
    const size_t buffer = static_cast<size_t>(std::ranges::find(used_, false) - used_.begin());
    if (buffer == used_.size()) used_.push_back(false);
    used_[buffer] = true;
    return buffer;
  }

  /// Leaf i is in `buffer`. Calls join(to, from) for buffers that become one, the lower of the
  /// sum's two sides first.
  template <class Join>
  void add(int64_t i, size_t buffer, Join&& join) {
    size_t node = static_cast<size_t>(leaves_ + i);  // its parent is node / 2, the root 1
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

  /// Where the sum is, once all leaves have come.
  size_t total() const { return waiting_[1]; }

  /// Buffers on the one of `ranks` ranks that takes most. In step n, of as many as there are ranks,
  /// leaves(rank, n) come.
  template <class Leaves>
  static int64_t most_buffers(int64_t ranks, Leaves&& leaves) {
    int64_t most = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      ArrivalTree tree(ranks * std::ssize(leaves(rank, 0)));
      for (int64_t step = 0; step < ranks; ++step)
        for (const int64_t i : leaves(rank, step)) tree.add(i, tree.take(), [](size_t, size_t) {});
      most = std::max(most, std::ssize(tree.used_));
    }
    return most;
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  int64_t leaves_;
  std::vector<size_t> waiting_;  ///< by node: the buffer of a sum without a sibling
  std::vector<bool> used_;
};

}  // namespace ladder
