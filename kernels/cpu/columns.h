// Sums over tokens, column by column. In a sequence the order is that of a vector
// (kernels/token_leaves.h); over sequences it is a tree. For the gradients of biases and norms, and
// for adafactor. Embeddings and experts join ColumnSums in trees of their own.
#pragma once

#include <array>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// Columns summed at a time, in registers. (AVX2 and NEON keep some in L1 where there are two
/// sums.)
constexpr int64_t kColumns = 64;

/// Count x kColumns sums.
template <int64_t Count>
struct ColumnSums {
  static constexpr int64_t kParts = kColumns / kLanes;
  std::array<Vec, static_cast<size_t>(Count* kParts)> value;

  static HWY_INLINE ColumnSums nothing() {
    ColumnSums sums;
    sums.value.fill(ladder::nothing());
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

/// kColumns columns. each(f) calls f(part, i, io) for every vector of them. `part` is a constant
/// there, so sums stay in registers.
template <class Wide>
struct AllColumns {
  template <class F>
  HWY_INLINE void each(const F& f) const {
#pragma GCC unroll 16
    for (int64_t part = 0; part < kColumns / kLanes; ++part) f(part, part * kLanes, Wide{});
  }
};
/// Fewer than kColumns columns.
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

/// Up to kStrips strips of kColumns columns take turns. In its turn, a strip adds kTurn rows, and
/// its sums stay in registers. With fewer strips, what is read of a row would be too short for
/// memory to deliver at full speed.
constexpr int64_t kStrips = 12;
constexpr int64_t kTurn = 8;

/// Asks for a place in a later row, into L2: the row that its strip reads two turns later. The part
/// of a row that is read is too short for the processor to see the pattern by itself.
template <class T>
HWY_INLINE void ask_for_later_row(const T* at, int64_t stride) {
  constexpr int64_t kRows = 16;
  __builtin_prefetch(at + kRows * stride, 0, 2);
}

/// sum_columns for at most kStrips strips.
template <int64_t Count, class Add, class Put>
void sum_strips(Range range, const VectorTree& tree, const Add& add, const Put& put) {
  using Sums = ColumnSums<Count>;
  using Trees = std::array<TreeSum<Sums>, kStrips>;
  const auto each_strip = [&](const auto& f) {
    for_columns(range, [&](int64_t c, auto columns) {
      f(static_cast<size_t>((c - range.begin) / kColumns), c, columns);
    });
  };
  std::array<Sums, kStrips> parked, early;
  // Adds a chain over some rows to each strip. Calls end(strip, sum) when a strip's chain is done.
  const auto add_chain = [&](Range rows, const auto& end) {
    Range turn{rows.begin, rows.begin};
    do {
      turn = {turn.end, std::min(turn.end + kTurn, rows.end)};
      each_strip([&](size_t strip, int64_t c, auto columns) {
        // go_on is called with one or the other. A choice between the two values would leave the
        // registers.
        const auto go_on = [&](Sums sum) __attribute__((always_inline)) {
          for (int64_t row = turn.begin; row < turn.end; ++row) add(sum, row, c, columns);
          turn.end == rows.end ? end(strip, sum) : void(parked[strip] = sum);
        };
        turn.begin == rows.begin ? go_on(Sums::nothing()) : go_on(parked[strip]);
      });
    } while (turn.end < rows.end);
  };
  // One tree over all leaves. A sequence has a power of two of leaves, so each sequence is a
  // subtree.
  Trees leaves;
  for (int64_t i = 0; i < tree.leaves(); ++i) {
    const Fold rows = tree.rows(i);
    add_chain(rows.early, [&](size_t strip, const Sums& sum) { early[strip] = sum; });
    add_chain(rows.late,
              [&](size_t strip, const Sums& sum) { leaves[strip].push(early[strip] + sum); });
  }
  each_strip([&](size_t strip, int64_t c, auto columns) {
    Sums total = leaves[strip].total(Sums::nothing());
    put(total, c, columns);
  });
}

/// Sums over tokens, for the columns of `range`. add(sums, row, c, columns) adds one token's terms
/// in the columns from c on. put(sums, c, columns) takes the finished sums.
template <int64_t Count, class Add, class Put>
void sum_columns(Range range, const VectorTree& tree, const Add& add, const Put& put) {
  constexpr int64_t kTogether = kStrips * kColumns;
  for (int64_t first = range.begin; first < range.end; first += kTogether)
    sum_strips<Count>({first, std::min(first + kTogether, range.end)}, tree, add, put);
}

/// Writes or adds the columns of sum `which`.
template <int64_t Count, class Columns>
void put_columns(float* to, ColumnSums<Count>& sums, int64_t which, Columns columns, Into into) {
  columns.each([&](int64_t part, int64_t i, auto io) {
    const Vec sum = sums.at(which, part);
    io.store(into == Into::Add ? hn::Add(io.load(to + i), sum) : sum, to + i);
  });
}

}  // namespace ladder
