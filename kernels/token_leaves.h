// The order of a sum over the tokens of a sequence, so that ranks can share the sequence.
//
// T tokens are cut into an even number of chunks, and leaf i takes chunk i and, behind it, the i-th
// chunk from the end: it is folded. With 4 leaves, 8 chunks:
//
//     chunk     0   1   2   3   4   5   6   7
//     leaf      0   1   2   3   3   2   1   0
//
// In causal attention early tokens are little work and late ones much, so ranks that share a
// sequence fairly have both: rank r of 2 has chunks 0, 1, 6, 7 or 2 to 5. These are leaves 0, 1 or
// 2, 3, a half of the tree each. To have less than all of a sequence, a rank has fewer chunks of
// fewer tokens, which fold among themselves in the same way.
//
// Many numbers are summed at once, and a tree over many leaves takes time; so there are two rules.
//   - A matrix (the gradient of a weight, of the token embedding) has at most 8 leaves, of at least
//     64 tokens each. A leaf is one chain: the tokens of its first chunk, then those of its second.
//   - A vector (the gradient of a bias, of a norm; the loss) always has 16 chunks, a chain each. A
//     leaf is the sum of its two. So ranks whose tokens are neighbors have chunks whole, too.
#pragma once

#include <algorithm>

#include "kernels/tree.h"

namespace ladder {

/// Chunks of a whole sequence: at most, or for vectors always.
constexpr int kTokenChunks = 16;
/// Tokens of a matrix's leaf, at least, where there are several.
constexpr int64_t kLeafTokens = 64;

/// The two chunks of a leaf.
struct Fold {
  Range early, late;
};

/// Leaf i of n over T tokens.
constexpr Fold fold(int64_t i, int64_t n, int64_t T) {
  return {leaf(i, 2 * n, T), leaf(2 * n - 1 - i, 2 * n, T)};
}
/// The leaf of n that token t of T is in.
constexpr int64_t leaf_of_token(int64_t t, int64_t n, int64_t T) {
  const int64_t chunk = ((t + 1) * 2 * n - 1) / T;
  return std::min(chunk, 2 * n - 1 - chunk);
}

/// Leaves of a matrix over T tokens, which are `chunks` of the sequence's kTokenChunks.
constexpr int64_t matrix_leaves(int chunks, int64_t T) {
  int64_t n = 1;
  while (4 * n <= chunks && T / (2 * n) >= kLeafTokens) n *= 2;
  return n;
}
/// Leaves of a vector over that. One chunk is a chain: there is nothing to fold it with.
constexpr int64_t vector_leaves(int chunks) { return std::max(1, chunks / 2); }
constexpr Fold vector_fold(int64_t i, int chunks, int64_t T) {
  return chunks == 1 ? Fold{{0, T}, {T, T}} : fold(i, vector_leaves(chunks), T);
}

/// The leaves of a vector over B sequences of T tokens, which are `chunks` chunks each.
struct VectorTree {
  int chunks;
  int64_t B, T;

  constexpr int64_t leaves() const { return B * vector_leaves(chunks); }
  /// The tokens of leaf i, as rows of a (B T,..) matrix.
  constexpr Fold rows(int64_t i) const {
    const int64_t n = vector_leaves(chunks), first = i / n * T;
    const Fold tokens = vector_fold(i % n, chunks, T);
    return {{first + tokens.early.begin, first + tokens.early.end},
            {first + tokens.late.begin, first + tokens.late.end}};
  }
};

/// Sum of f(t) over T tokens, for an element of a matrix.
template <class Real, class F>
Real matrix_sum(int chunks, int64_t T, F&& f) {
  const int64_t n = matrix_leaves(chunks, T);
  return tree_sum<Real>(n, [&](int64_t i) {
    const auto [early, late] = fold(i, n, T);
    return chain_sum<Real>(late, f, chain_sum<Real>(early, f));
  });
}

/// Sum of f(t) over T tokens, for an element of a vector.
template <class Real, class F>
Real vector_sum(int chunks, int64_t T, F&& f) {
  return tree_sum<Real>(vector_leaves(chunks), [&](int64_t i) {
    const auto [early, late] = vector_fold(i, chunks, T);
    return chain_sum<Real>(early, f) + chain_sum<Real>(late, f);
  });
}

}  // namespace ladder
