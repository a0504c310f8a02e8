// Attention of documents by attention of sequences, one document after the other.
#pragma once

#include "kernels/context.h"
#include "kernels/tree.h"

namespace ladder {

/// Where a document lies in rows of B T tokens.
struct PackedDocument {
  Range rows;

  /// (1,L,N) of x (B,T,N)
  Tensor of(const Tensor& x) const {
    return x.view({x.rows(), x.dim(-1)})
        .slice(rows.begin, rows.size())
        .view({1, rows.size(), x.dim(-1)});
  }
  /// (1,NH,L) of statistics (B,NH,T)
  Tensor statistics(const Tensor& x) const {
    const int64_t NH = x.dim(1);
    return x.view({x.size()}).slice(NH * rows.begin, NH * rows.size()).view({1, NH, rows.size()});
  }
};

/// Calls f(ctx without documents, rows) for the documents of `tokens` rows.
template <class F>
void for_packed(const Ctx& ctx, int64_t tokens, F&& f) {
  const int32_t* begin = ctx.packed.begin.data<int32_t>();
  const int64_t count = ctx.packed.begin.size() - 1;
  CHECK(count >= 0 && begin[0] == 0 && begin[count] == tokens, "documents that are not all {} rows",
        tokens);
  Ctx alone = ctx;
  alone.packed = {};
  for (int64_t d = 0; d < count; ++d) {
    CHECK(begin[d] <= begin[d + 1], "document {} ends before it begins", d);
    if (begin[d] < begin[d + 1]) f(alone, PackedDocument{{begin[d], begin[d + 1]}});
  }
}

}  // namespace ladder
