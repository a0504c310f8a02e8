// How attention cuts a sequence, and where its rows lie: a head's in a tensor, and a piece's in its
// sequence.
#pragma once

#include <array>

#include "kernels/kernels.h"
#include "kernels/shapes.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// Folded leaves of a sum over the queries of a sequence (dk, dv): those of a matrix.
constexpr int64_t kMostLeaves = kTokenChunks / 2;
constexpr int64_t query_leaves(int64_t T) { return matrix_leaves(kTokenChunks, T); }
/// Chunks of a sum over its keys (m, l and o; dq): as many as the leaves fold; but a sequence with
/// one leaf is one chunk. Chunk i of n is leaf(i, n, T).
constexpr int64_t key_chunks(int64_t T) { return query_leaves(T) == 1 ? 1 : 2 * query_leaves(T); }

/// Which of the heads in a token's row are meant: of each group of `group` heads the one that
/// `first` others come before, and its neighbors.
struct HeadColumns {
  int64_t groups;
  int64_t group;
  int64_t first;

  /// Heads of a token: how far rows lie apart.
  constexpr int64_t heads() const { return groups * group; }
  /// The first of group g that is meant.
  constexpr int64_t head(int64_t g) const { return g * group + first; }
};

/// Where queries, keys and values are: in qkv, or queries apart from keys and values.
struct AttentionColumns {
  HeadColumns q, k, v;

  static constexpr AttentionColumns together(int64_t NKV, int64_t r) {
    return {{NKV, r + 2, 0}, {NKV, r + 2, r}, {NKV, r + 2, r + 1}};
  }
  static constexpr AttentionColumns apart(int64_t NKV, int64_t r) {
    return {{NKV, r, 0}, {NKV, 2, 0}, {NKV, 2, 1}};
  }
};

/// Rows of one head, one a token.
template <class T>
struct HeadRows {
  T* first;
  int64_t stride;

  T* operator[](int64_t row) const { return first + row * stride; }
  /// Those of another head of the group, `columns` further.
  HeadRows operator+(int64_t columns) const { return {first + columns, stride}; }
};

/// Rows of the first of these heads of group g of sequence b, HS columns each, in a tensor
/// (B,tokens,heads*HS).
template <class T>
HeadRows<T> head_rows(T* base, const HeadColumns& columns, int64_t tokens, int64_t HS, int64_t b,
                      int64_t g) {
  const int64_t stride = columns.heads() * HS;
  return {base + b * tokens * stride + columns.head(g) * HS, stride};
}

/// Some tokens of a sequence, and the row in which the first of them lies.
struct TokenRun {
  Range tokens;
  int64_t row;
};

/// The runs of a piece's queries; one if the second follows on the first. The other is empty then.
constexpr std::array<TokenRun, 2> query_runs(const AttentionPlace& place, int64_t Tq) {
  const auto [low, high] = place.queries;
  const int64_t half = Tq / 2;
  if (low + half == high) return {{{{low, low + Tq}, 0}, {{low + Tq, low + Tq}, Tq}}};
  return {{{{low, low + half}, 0}, {{high, high + Tq - half}, half}}};
}

/// The whole sequence as a piece.
constexpr AttentionPlace whole_sequence(int64_t T) { return {T, {0, T / 2}, 0}; }
constexpr AttentionPieceShape piece_of(const AttentionShape& s) {
  return {.B = s.B, .Tq = s.T, .Tk = s.T, .NH = s.NH, .NKV = s.NKV, .HS = s.HS};
}

}  // namespace ladder
