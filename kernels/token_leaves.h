// Where the sums over the tokens of one sequence are cut, so that ranks can share the sequence
// (context parallelism) and the bits stay the same.
//
// A sequence has n token leaves and is cut into 2n chunks c_0 ... c_{2n-1}. Under a causal mask the
// late tokens have the most work, so leaf i is folded: the tokens of c_i, then those of c_{2n-1-i}.
// Rank r of cp has the leaves from r n / cp on, which are chunks r and 2 cp - 1 - r of 2 cp chunks:
//
//     chunk           0 1 2 3 4 5 6 7       n = 4, of 2 ranks: rank 0 has leaves 0 and 1
//     folded leaf     0 1 2 3 3 2 1 0
//     rank            0 0 1 1 1 1 0 0
#pragma once

#include <array>
#include <cstdint>

#include "kernels/tree.h"

namespace ladder {

/// Ranks that can share a sequence, at most; and tokens of a leaf, at least: shorter sums would
/// cost more than they compute.
constexpr int64_t kMostTokenLeaves = 8;
constexpr int64_t kLeastLeafTokens = 64;

/// n of a sequence of T tokens: the largest power of two that both limits allow.
constexpr int64_t token_leaves(int64_t T) {
  int64_t n = 1;
  while (2 * n <= kMostTokenLeaves && T / (2 * n) >= kLeastLeafTokens) n *= 2;
  return n;
}

/// Chunk i of `chunks` of a sequence of T tokens.
constexpr Range chunk(int64_t i, int64_t chunks, int64_t T) { return leaf(i, chunks, T); }

/// The chunks of folded leaf i of n of T tokens, in the order in which their tokens are summed.
constexpr std::array<Range, 2> folded_leaf(int64_t i, int64_t n, int64_t T) {
  return {chunk(i, 2 * n, T), chunk(2 * n - 1 - i, 2 * n, T)};
}

}  // namespace ladder
