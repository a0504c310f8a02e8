// Sums over tokens, column by column: a tree over sequences, in each a tree over leaves
// of its tokens, in a leaf ascending tokens. Used for the gradients of biases and layer norms.
#pragma once

#include <array>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"
#include "kernels/tree.h"

namespace ladder {

/// Columns that are summed at a time, in registers.
constexpr int64_t kColumns = 8 * kLanes;

/// Count x kColumns sums.
template <int64_t Count>
struct ColumnSums {
  static constexpr int64_t kParts = kColumns / kLanes;
  std::array<Vec, static_cast<size_t>(Count* kParts)> value;

  static HWY_INLINE ColumnSums zeros() {
    ColumnSums sums;
    sums.value.fill(zero());
    return sums;
  }
  friend HWY_INLINE ColumnSums operator+(const ColumnSums& a, const ColumnSums& b) {
    ColumnSums sums;
    for (size_t i = 0; i < sums.value.size(); ++i) sums.value[i] = hn::Add(a.value[i], b.value[i]);
    return sums;
  }
  /// Vector `part` of the columns of sum `which`.
  HWY_INLINE Vec& at(int64_t which, int64_t part) {
    return value[static_cast<size_t>(which * kParts + part)];
  }
};

/// kColumns columns. each(f) calls f(part, i, io) for their vectors; the parts are constants then,
/// so that sums stay in registers.
template <class Wide>
struct AllColumns {
  template <class F>
  HWY_INLINE void each(const F& f) const {
#pragma GCC unroll 8
    for (int64_t part = 0; part < kColumns / kLanes; ++part) f(part, part * kLanes, Wide{});
  }
};
/// Fewer.
struct SomeColumns {
  int64_t count;
  template <class F>
  HWY_INLINE void each(const F& f) const {
    for_vectors(0, count, [&](int64_t i, auto io) { f(i / kLanes, i, io); });
  }
};

/// Calls f(first, columns) for the columns of `range`, kColumns at a time.
template <class Wide = Whole, class F>
void for_columns(Range range, const F& f) {
  int64_t first = range.begin;
  for (; first + kColumns <= range.end; first += kColumns) f(first, AllColumns<Wide>{});
  if (first < range.end) f(first, SomeColumns{range.end - first});
}

/// add_row(sums, row) adds the terms of one token. Returns the sum over B sequences of T tokens,
/// each in `leaves` leaves.
template <int64_t Count, class F>
ColumnSums<Count> sum_tokens(int leaves, int64_t B, int64_t T, const F& add_row) {
  using Sums = ColumnSums<Count>;
  TreeSum<Sums> sequences;
  for (int64_t b = 0; b < B; ++b) {
    TreeSum<Sums> sequence;
    for (int64_t i = 0; i < leaves; ++i) {
      const Range tokens = leaf(i, leaves, T);
      Sums sums = Sums::zeros();
      for (int64_t t = tokens.begin; t < tokens.end; ++t) add_row(sums, b * T + t);
      sequence.push(sums);
    }
    sequences.push(sequence.total(Sums::zeros()));
  }
  return sequences.total(Sums::zeros());
}

/// Writes the columns of sum `which`, or adds them.
template <int64_t Count, class Columns>
void put_columns(float* to, ColumnSums<Count>& sums, int64_t which, Columns columns, Into into) {
  columns.each([&](int64_t part, int64_t i, auto io) {
    const Vec sum = sums.at(which, part);
    io.store(into == Into::Add ? hn::Add(io.load(to + i), sum) : sum, to + i);
  });
}

}  // namespace ladder
