// The order of a sum over the tokens of a sequence, so that ranks can share the sequence.
//
// T tokens are cut into an even number of chunks. Leaf i has two of them: chunk i, and the i-th
// chunk from the end. Such a leaf is called folded. With 4 leaves, 8 chunks:
//
//     chunk     0   1   2   3   4   5   6   7
//     leaf      0   1   2   3   3   2   1   0
//
// In causal attention early tokens are little work and late tokens are much. Ranks that share a
// sequence fairly have both: of 2 ranks, one has chunks 0, 1, 6, 7 and the other 2 to 5. These are
// leaves 0, 1 and leaves 2, 3: half of the tree each. A rank with a part of the sequence has fewer
// tokens and fewer chunks; these fold among themselves in the same way.
//
// Many numbers are summed at once, and a tree over many leaves takes time. So there are two rules.
//   - A matrix (the gradient of a weight, of the token embedding) has at most 8 leaves, of at least
//     64 tokens each. A leaf is one chain: the tokens of its first chunk, then those of its second.
//   - A vector (the gradient of a bias or of a norm; the loss) always has 16 chunks, each one
//     chain. A leaf is the sum of its two chains. So a rank whose tokens are neighbors
//     (sequence parallelism, chapter 11) has whole chunks, though not whole leaves.
#pragma once

#include <algorithm>

#include "kernels/tree.h"

namespace ladder {

/// The most chunks that a sequence has. For vectors it is always this many.
constexpr int kTokenChunks = 16;
/// The fewest tokens of a matrix's leaf, where there are several leaves.
constexpr int64_t kLeafTokens = 64;

/// The two chunks of a leaf.
struct Fold {
  Range early, late;
};

/// Leaf i of n over T tokens.
constexpr Fold fold(int64_t i, int64_t n, int64_t T) {
  return {leaf(i, 2 * n, T), leaf(2 * n - 1 - i, 2 * n, T)};
}

/// How many leaves a matrix has over T tokens, which are `chunks` of the sequence's kTokenChunks
/// chunks.
constexpr int64_t matrix_leaves(int chunks, int64_t T) {
  int64_t n = 1;
  while (4 * n <= chunks && T / (2 * n) >= kLeafTokens) n *= 2;
  return n;
}
/// Whether the n leaves of a matrix are folded. If a whole sequence is one leaf, that leaf is one
/// range of tokens. But if a rank's part is one leaf of several, it is two ranges. The difference
/// counts where a processor multiplies BF16 in pairs of tokens: there two ranges may have other
/// bits.
constexpr bool matrix_folds(int64_t n, int chunks) { return n > 1 || chunks < kTokenChunks; }
/// How many leaves a vector has over `chunks` chunks. A single chunk has no partner to fold with,
/// so it is a leaf of its own.
constexpr int64_t vector_leaves(int chunks) { return std::max(1, chunks / 2); }
constexpr Fold vector_fold(int64_t i, int chunks, int64_t T) {
  return chunks == 1 ? Fold{{0, T}, {T, T}} : fold(i, vector_leaves(chunks), T);
}

/// The same two chunks, `by` further on.
constexpr Fold moved(const Fold& x, int64_t by) {
  return {{x.early.begin + by, x.early.end + by}, {x.late.begin + by, x.late.end + by}};
}

/// The sequences that a sum is over, as rows of a matrix (B T,..): each has T tokens, or they are
/// documents (Ctx::documents) of at most T, some of which may be empty.
struct Sequences {
  int64_t count, T;
  const int32_t* documents = nullptr;  ///< DocumentBorders::borders
  /// Sequences are the first `used` of every `used * spread` documents: with 2 and 4, these are
  /// documents 0, 1, 8, 9, 16, ...
  int64_t used = 1, spread = 1;

  /// Which document sequence i is.
  constexpr int64_t document(int64_t i) const { return (i & -used) * spread + (i & (used - 1)); }
  constexpr Range operator[](int64_t i) const {
    if (documents) return {documents[2 * document(i)], documents[2 * document(i) + 1]};
    return {i * T, (i + 1) * T};
  }
};

/// Calls f(index, rows) for the leaves of a matrix over sequences, ascending. Each sequence has as
/// many indices as T tokens have leaves; a document with fewer leaves uses the first of them.
template <class F>
void for_matrix_leaves(const Sequences& sequences, int chunks, F&& f) {
  const int64_t indices = matrix_leaves(chunks, sequences.T);
  for (int64_t b = 0; b < sequences.count; ++b) {
    const Range rows = sequences[b];
    const int64_t T = rows.size(), n = matrix_leaves(chunks, T);
    for (int64_t i = 0; i < n; ++i) {
      const Fold own = matrix_folds(n, chunks) ? fold(i, n, T) : Fold{{0, T}, {T, T}};
      f(b * indices + i, moved(own, rows.begin));
    }
  }
}

/// Calls f(row) for the tokens of a leaf, in the order of their sum.
template <class F>
void for_rows(const Fold& leaf, F&& f) {
  for (const Range& chunk : {leaf.early, leaf.late})
    for (int64_t row = chunk.begin; row < chunk.end; ++row) f(row);
}

/// The position in its sequence of the token in a row. Padding is taken for a first token.
struct Positions {
  int64_t T;
  const int32_t* documents = nullptr;  ///< (B T): DocumentBorders::position

  constexpr int64_t operator[](int64_t row) const {
    return documents ? std::max<int64_t>(documents[row], 0) : row % T;
  }
  constexpr bool is_padding(int64_t row) const { return documents && documents[row] < 0; }
};

/// The leaves of a vector over sequences. Each sequence is `chunks` chunks.
struct VectorTree {
  int chunks;
  Sequences sequences;

  constexpr int64_t leaves() const { return sequences.count * vector_leaves(chunks); }
  /// The tokens of leaf i, as rows of the matrix.
  constexpr Fold rows(int64_t i) const {
    const int64_t n = vector_leaves(chunks);
    const Range rows = sequences[i / n];
    return moved(vector_fold(i % n, chunks, rows.size()), rows.begin);
  }
};

/// Sum of f(t) over T tokens, for one element of a matrix.
template <class Real, class F>
Real matrix_sum(int chunks, int64_t T, F&& f) {
  const int64_t n = matrix_leaves(chunks, T);
  return tree_sum<Real>(n, [&](int64_t i) {
    const auto [early, late] = fold(i, n, T);
    return chain_sum<Real>(late, f, chain_sum<Real>(early, f));
  });
}

/// Sum of f(t) over T tokens, for one element of a vector.
template <class Real, class F>
Real vector_sum(int chunks, int64_t T, F&& f) {
  return tree_sum<Real>(vector_leaves(chunks), [&](int64_t i) {
    const auto [early, late] = vector_fold(i, chunks, T);
    return chain_sum<Real>(early, f) + chain_sum<Real>(late, f);
  });
}

}  // namespace ladder
