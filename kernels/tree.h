// The order of every sum that a layout could split: a balanced binary tree over leaves.
//
// Leaves come in ascending order and are joined as a binary counter counts. For example, the sum of
// leaves 0..5 is ((l0+l1)+(l2+l3))+(l4+l5). So a rank that owns 2^k aligned leaves can sum them
// alone, and the whole sum still has the same bits.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/check.h"

namespace ladder {

/// A half-open range of indices.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  constexpr int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Leaf i of n over K elements: [floor(i K / n), floor((i + 1) K / n)). May be empty.
constexpr Range leaf(int64_t i, int64_t n, int64_t K) { return {i * K / n, (i + 1) * K / n}; }

/// The sum of no terms is -0. Adding -0 changes no number, where adding +0 would turn -0 into +0.
/// So sums begin at -0. Rows to which nothing is added, on one rank or on all, hold -0.
constexpr double kNothing = -0.0;

/// Sums scalar leaves as the tree does. T is float, double, or a vector with operator+.
template <class T>
class TreeSum {
 public:
  /// Adds the next leaf.
  void push(T sum) {
    int level = 0;
    for (; count_ >> level & 1; ++level) sum = partial_[level] + sum;
    CHECK(level < kLevels, "more than 2^{} leaves", kLevels);
    partial_[level] = sum;
    ++count_;
  }

  /// The sum of all leaves; `nothing` if there were none.
  T total(T nothing = T(kNothing)) const {
    bool empty = true;
    T sum = nothing;
    for (int level = 0; count_ >> level != 0; ++level) {
      if (!(count_ >> level & 1)) continue;
      sum = empty ? partial_[level] : partial_[level] + sum;
      empty = false;
    }
    return sum;
  }

 private:
  static constexpr int kLevels = 40;
  std::array<T, kLevels> partial_;
  uint64_t count_ = 0;
};

/// The same tree where most leaves are absent. Absent leaves are skipped. Two neighbors are joined
/// as soon as no later leaf can come between them in the tree: the smallest subtree that holds both
/// is smaller than the one that the next leaf shares with them. The result has the bits of TreeSum
/// with -0 for each absent leaf.
template <class T>
class SparseTreeSum {
 public:
  /// Adds leaf `index`, which must be larger than all before.
  constexpr void push(int64_t index, const T& sum) {
    while (count_ >= 2 && is_closer(node(1).index, node(0).index, index)) join();
    nodes_[count_].index = index;
    nodes_[count_++].sum = sum;
  }

  /// Joins everything, returns the sum, and starts anew.
  constexpr T take(T nothing = T(kNothing)) {
    while (count_ >= 2) join();
    return count_ == 0 ? nothing : nodes_[--count_].sum;
  }

 private:
  struct Node {
    int64_t index;
    T sum;
  };
  /// Whether the smallest subtree that holds leaves a and b is smaller than that of b and c: they
  /// differ in lower bits. (In device code nvcc 13.0 wrongly makes a constant of std::bit_width.)
  static constexpr bool is_closer(int64_t a, int64_t b, int64_t c) {
    const auto x = static_cast<uint64_t>(a ^ b), y = static_cast<uint64_t>(b ^ c);
    return x < y && x < (x ^ y);
  }
  constexpr Node& node(size_t from_top) { return nodes_[count_ - 1 - from_top]; }
  constexpr void join() {
    node(1).sum = node(1).sum + node(0).sum;
    --count_;
  }

  std::array<Node, 64> nodes_;
  size_t count_ = 0;
};

/// Sum of f(i) for i in [0, n), as a tree over n leaves.
template <class T, class F>
T tree_sum(int64_t n, F&& f) {
  TreeSum<T> sum;
  for (int64_t i = 0; i < n; ++i) sum.push(f(i));
  return sum.total();
}

/// sum + f(k) + f(k + 1) + ... for k in `range`, from left to right.
template <class T, class F>
T chain_sum(Range range, F&& f, T sum = T(kNothing)) {
  for (int64_t k = range.begin; k < range.end; ++k) sum += f(k);
  return sum;
}

/// Sum of f(k) for k in [0, K), cut into n leaves: ascending inside a leaf, then the tree of
/// leaves.
template <class T, class F>
T leaves_sum(int64_t n, int64_t K, F&& f) {
  return tree_sum<T>(n, [&](int64_t i) { return chain_sum<T>(leaf(i, n, K), f); });
}

}  // namespace ladder
