// Sums over tokens, column by column: a tree over sequences, in each a tree over kLeaves leaves
// of its tokens, in a leaf ascending tokens. Used for the gradients of biases and layer norms.
#pragma once

#include <array>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernels.h"
#include "kernels/tree.h"

namespace ladder {

/// Columns that are summed at a time, in registers.
constexpr int64_t kColumns = 32;

/// Count x kColumns sums.
template <int64_t Count>
struct ColumnSums {
  static constexpr int64_t kSize = Count * kColumns;
  std::array<float, kSize> value;

  static ColumnSums zeros() { return {.value = {}}; }
  friend ColumnSums operator+(const ColumnSums& a, const ColumnSums& b) {
    ColumnSums sum;
    for (size_t i = 0; i < kSize; ++i) sum.value[i] = a.value[i] + b.value[i];
    return sum;
  }
};

/// f(sums, row, columns) adds the terms of one token to the sums of `columns`, which are at most
/// kColumns. Returns the sum over the B sequences of T tokens.
template <int64_t Count, class F>
ColumnSums<Count> sum_tokens(int64_t B, int64_t T, F&& add_row) {
  using Sums = ColumnSums<Count>;
  TreeSum<Sums> sequences;
  for (int64_t b = 0; b < B; ++b) {
    TreeSum<Sums> leaves;
    for (int64_t i = 0; i < kLeaves; ++i) {
      const Range tokens = leaf(i, kLeaves, T);
      Sums sums = Sums::zeros();
      for (int64_t t = tokens.begin; t < tokens.end; ++t) add_row(sums, b * T + t);
      leaves.push(sums);
    }
    sequences.push(leaves.total(Sums::zeros()));
  }
  return sequences.total(Sums::zeros());
}

/// Writes or adds `count` sums.
inline void put_columns(float* to, const float* sums, int64_t count, Into into) {
  for (int64_t i = 0; i < count; ++i) to[i] = into == Into::Add ? to[i] + sums[i] : sums[i];
}

}  // namespace ladder
