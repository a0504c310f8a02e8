// Documents in rows: how borders are made, and how kernels read them.
//
// A bundle is the documents of a packed row, in that row or in a row each. A sum over documents is
// a tree over those of a bundle, then a tree over bundles. Both are one tree, because each bundle
// has the same number of turns, a power of two (turns_of_bundle): document i of bundle b takes turn
// b * turns + i, and D = bundles * turns. A turn without a document is empty: an absent leaf, with
// a loss of -0. For example, bundles of 3 documents and of 1 have 4 turns each; of the D = 8 turns,
// 3, 5, 6 and 7 are empty. Where all bundles leave the second half of their turns empty, the first
// half has the same tree. So sums look at the first `used` turns of each bundle alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>

#include "kernels/context.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// How many turns a bundle has if it has at most `most` documents.
constexpr int64_t turns_of_bundle(int64_t most) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(most, 1))));
}

/// Checks `borders` of DocumentBorders and fills its `position`, on the host. Returns the tokens of
/// the longest document.   position (B,T) I32; borders (D,2) I32
/// @throws CheckError if documents do not ascend or do not lie in one row each
inline int64_t fill_positions(const Tensor& position, const Tensor& borders) {
  const int64_t T = position.dim(1), D = borders.dim(0);
  CHECK(borders.shape == Shape({D, 2}), "borders of documents are {}", to_string(borders.shape));
  const int32_t* border = borders.data<int32_t>();
  int32_t* to = position.data<int32_t>();
  std::fill_n(to, position.size(), kPadding);
  int64_t before = 0, longest = 0;
  for (int64_t d = 0; d < D; ++d) {
    const int64_t begin = border[2 * d], end = border[2 * d + 1];
    if (begin == end) continue;
    CHECK(before <= begin && begin < end && end <= position.size() && begin / T == (end - 1) / T,
          "document {} has rows [{}, {}) of {} x {}; the one before ends at {}", d, begin, end,
          position.dim(0), T, before);
    for (int64_t row = begin; row < end; ++row) to[row] = static_cast<int32_t>(row - begin);
    longest = std::max(longest, end - begin);
    before = end;
  }
  return longest;
}

/// DocumentBorders::used, on the host. borders (D,2) I32, of bundles of `turns` turns
inline int64_t turns_in_use(const Tensor& borders, int64_t turns) {
  const int32_t* border = borders.data<int32_t>();
  int64_t most = 0;
  for (int64_t d = 0; d < borders.dim(0); ++d)
    if (border[2 * d] < border[2 * d + 1]) most = std::max(most, d % turns + 1);
  return turns_of_bundle(most);
}

/// All sequences of a call with B T tokens: each T tokens, or documents. The pointer in it is read
/// where kernels compute.
inline Sequences all_sequences_of(const Ctx& ctx, int64_t B, int64_t T) {
  const auto& [borders, position, longest, turns, used, chunk_length] = ctx.documents;
  if (!borders) return {B, T};
  CHECK(ctx.token_chunks == kTokenChunks,
        "documents where ranks share a sequence: a call has {} of {} chunks, and takes all",
        ctx.token_chunks, kTokenChunks);
  CHECK(position && position.size() == B * T && longest <= T,
        "documents of up to {} tokens in {} rows, and a call of {} x {}", longest, position.size(),
        B, T);
  CHECK(chunk_length == 0 || longest <= chunk_length,
        "chunks of {} tokens, and a document of {}; legal are 0 and {} or more", chunk_length,
        longest, longest);
  const Place wrong = ctx.device ? Place::Host : Place::Device;
  CHECK(borders.place != wrong && position.place != wrong,
        "documents where kernels cannot read them");
  CHECK(turns >= used && borders.dim(0) % turns == 0 && std::has_single_bit(uint64_t(turns)) &&
            std::has_single_bit(uint64_t(used)),
        "{} of {} turns in use, of {} in all", used, turns, borders.dim(0));
  return {borders.dim(0), longest, static_cast<const int32_t*>(borders.ptr)};
}

/// Those that a sum looks at: without the turns that are empty in every bundle.
inline Sequences sequences_of(const Ctx& ctx, int64_t B, int64_t T) {
  Sequences sequences = all_sequences_of(ctx, B, T);
  if (!sequences.documents) return sequences;
  sequences.used = ctx.documents.used;
  sequences.spread = ctx.documents.turns / ctx.documents.used;
  sequences.count /= sequences.spread;
  return sequences;
}

/// The position of each token of a call. Checks ctx.documents as all_sequences_of does.
inline Positions positions_of(const Ctx& ctx, int64_t B, int64_t T) {
  (void)all_sequences_of(ctx, B, T);
  return {T, static_cast<const int32_t*>(ctx.documents.position.ptr)};
}

/// For operations that cannot take documents as sequences.
inline void refuse_documents(const Ctx& ctx, const char* op) {
  CHECK(!ctx.documents.borders, "{} takes whole rows, not documents", op);
}

/// One document, and views of it in tensors of B T tokens.
struct DocumentRows {
  Range rows;

  /// (1,L,N) of x (B,T,N)
  Tensor of(const Tensor& x) const {
    return x.view({x.rows(), x.dim(-1)})
        .slice(rows.begin, rows.size())
        .view({1, rows.size(), x.dim(-1)});
  }
  /// (1,NH,L) in the memory of x (B,NH,T). It is a place of the document's own, not where a row's
  /// statistics would lie: from number NH begin of x on. Forward and backward agree on it.
  Tensor statistics(const Tensor& x) const {
    const int64_t NH = x.dim(1);
    return x.view({x.size()}).slice(NH * rows.begin, NH * rows.size()).view({1, NH, rows.size()});
  }
};

/// Attention of documents on the host: calls f(ctx, DocumentRows) for each, one after the other.
/// This ctx has no documents, but their chunk_length. Then it writes 0 to `outputs`, of B T tokens
/// each, where there is padding.
template <class F>
void attend_documents(const Ctx& ctx, int64_t B, int64_t T, std::initializer_list<Tensor> outputs,
                      F&& f) {
  const Sequences documents = sequences_of(ctx, B, T);
  Ctx alone = ctx;
  alone.documents = {};
  alone.documents.chunk_length = ctx.documents.chunk_length;
  for (int64_t d = 0; d < documents.count; ++d)
    if (documents[d].size() > 0) f(alone, DocumentRows{documents[d]});
  const int32_t* position = ctx.documents.position.data<int32_t>();
  for (const Tensor& x : outputs) {
    const int64_t bytes = x.bytes() / std::max<int64_t>(B * T, 1);
    for (int64_t row = 0; row < B * T; ++row)
      if (position[row] == kPadding)
        std::memset(static_cast<char*>(x.host()) + row * bytes, 0, static_cast<size_t>(bytes));
  }
}

}  // namespace ladder
