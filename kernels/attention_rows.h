// How attention cuts a sequence into leaves and chunks; where the rows of a head lie in a tensor,
// and where the rows of a piece lie in their sequence.
#pragma once

#include <array>

#include "kernels/kernels.h"
#include "kernels/shapes.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// Folded leaves of a sum over the queries of a sequence (dk, dv): as many as a matrix has.
constexpr int64_t kMostLeaves = kTokenChunks / 2;
constexpr int64_t query_leaves(int64_t T) { return matrix_leaves(kTokenChunks, T); }
/// Chunks of a sum over the keys of a sequence (m, l and o; dq): two for each folded leaf, but only
/// one where there is one leaf. Chunk i of n is leaf(i, n, T).
constexpr int64_t key_chunks(int64_t T) { return query_leaves(T) == 1 ? 1 : 2 * query_leaves(T); }

/// Chooses heads in a token's row. The row holds `groups` groups of `group` heads each. In each
/// group, `first` is the index of the first head that is chosen.
struct HeadColumns {
  int64_t groups;
  int64_t group;
  int64_t first;

  /// Heads in a row, chosen or not.
  constexpr int64_t heads() const { return groups * group; }
  /// The index in the row of the first chosen head of group g.
  constexpr int64_t head(int64_t g) const { return g * group + first; }
};

/// Which heads of a row are queries, keys and values, for NKV groups of r queries. `together`: all
/// are in qkv. `apart`: queries are in q, keys and values in kv. `cached`: queries are in qkv, keys
/// and values in a cache that is like kv.
struct AttentionColumns {
  HeadColumns q, k, v;

  static constexpr AttentionColumns together(int64_t NKV, int64_t r) {
    return {{NKV, r + 2, 0}, {NKV, r + 2, r}, {NKV, r + 2, r + 1}};
  }
  static constexpr AttentionColumns apart(int64_t NKV, int64_t r) {
    return {{NKV, r, 0}, {NKV, 2, 0}, {NKV, 2, 1}};
  }
  static constexpr AttentionColumns cached(int64_t NKV, int64_t r) {
    return {together(NKV, r).q, apart(NKV, r).k, apart(NKV, r).v};
  }
};

/// The rows of one head, one for each token.
template <class T>
struct HeadRows {
  T* first;
  int64_t stride;

  T* operator[](int64_t row) const { return first + row * stride; }
  /// The rows of another head of the group, `columns` columns to the right.
  HeadRows operator+(int64_t columns) const { return {first + columns, stride}; }
};

/// The rows of the first chosen head of group g, in sequence b. The tensor is (B,tokens,heads*HS).
template <class T>
HeadRows<T> head_rows(T* base, const HeadColumns& columns, int64_t tokens, int64_t HS, int64_t b,
                      int64_t g) {
  const int64_t stride = columns.heads() * HS;
  return {base + b * tokens * stride + columns.head(g) * HS, stride};
}

/// A run of tokens, and the row in which its first token lies.
struct TokenRun {
  Range tokens;
  int64_t row;
};

/// The two runs of a piece's queries. If the second follows directly on the first, they become one
/// run, and the other is empty.
constexpr std::array<TokenRun, 2> query_runs(const AttentionPositions& place, int64_t Tq) {
  const auto [low, high] = place.queries;
  const int64_t half = Tq / 2;
  if (low + half == high) return {{{{low, low + Tq}, 0}, {{low + Tq, low + Tq}, Tq}}};
  return {{{{low, low + half}, 0}, {{high, high + Tq - half}, half}}};
}

/// The whole sequence as a piece. `length`, if it is not 0, is that of
/// DocumentBorders::chunk_length.
constexpr AttentionPositions whole_sequence(int64_t T, int64_t length = 0) {
  return {length == 0 ? T : length, {0, T / 2}, 0};
}
constexpr Extents piece_of(Extents s) {
  s.Tq = s.Tk = s.T;
  return s;
}
/// One sequence, of which the keys up to the last query exist.
constexpr Extents piece_of(Extents s, const CachedPlace& place) {
  s.B = 1;
  s.Tk = place.first + s.Tq;
  return s;
}

}  // namespace ladder
