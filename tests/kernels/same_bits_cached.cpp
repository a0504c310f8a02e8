// Attention over a cache has the bits of attention over the whole sequence, whatever the pieces in
// which a text comes; chunks of keys come from the length of the window, not from that of the text.
#include <algorithm>

#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

struct CachedSizes {
  int64_t T, NH, NKV, HS;
  int64_t columns() const { return (NH + 2 * NKV) * HS; }
  int64_t cached() const { return 2 * NKV * HS; }
};

class SameBitsCached : public SameBits {
 protected:
  Tensor whole(const Tensor& qkv, const CachedSizes& s) {
    const int64_t T = qkv.dim(0);
    const Tensor out = box.empty({1, T, s.NH * s.HS});
    k.attention_forward(ctx, out, box.empty(sums, {1, s.NH, T}), qkv.view({1, T, s.columns()}));
    return out.view({T, s.NH * s.HS});
  }

  /// The same rows with a cache: the text comes in pieces of `piece` tokens. `window` is the length
  /// from which chunks come; `shift` moves the queries, a mistake.
  Tensor in_pieces(const Tensor& qkv, const CachedSizes& s, int64_t piece, int64_t window,
                   int64_t shift = 0) {
    const int64_t T = qkv.dim(0), r = s.NH / s.NKV;
    const Tensor out = box.empty({T, s.NH * s.HS}), cache = box.empty({window, s.cached()});
    for (int64_t t = 0; t < T; t += piece) {
      const int64_t m = std::min(piece, T - t);
      const Tensor rows = qkv.slice(t, m);
      k.copy_columns(ctx, cache.slice(t, m).view({m, s.NKV, 2 * s.HS}), 0,
                     rows.view({m, s.NKV, (r + 2) * s.HS}), r * s.HS, 2 * s.HS);
      k.attention_cached(ctx, out.slice(t, m), rows, cache, s.NH,
                         {window, std::max<int64_t>(0, t - shift)});
    }
    return out;
  }
};

constexpr CachedSizes kCached[] = {{64, 4, 2, 16}, {136, 2, 1, 8}, {256, 2, 2, 5}, {512, 2, 1, 8}};

TEST_P(SameBitsCached, PiecesOfAText) {
  for (const CachedSizes& s : kCached) {
    box.set_threads(1);
    const Tensor qkv = spread(box, {s.T, s.columns()});
    const Tensor want = whole(qkv, s);
    use_threads();
    for (const int64_t piece : {int64_t{1}, int64_t{7}, int64_t{100}, s.T}) {
      SCOPED_TRACE(std::to_string(s.T) + " in pieces of " + std::to_string(piece));
      EXPECT_TRUE(same_bits(in_pieces(qkv, s, piece, s.T), want));
    }
  }
}

/// 301 tokens of a window of 512: the rows of the window. With chunks of its own length a text has
/// other bits, and a query that is a token early misses a key.
TEST_P(SameBitsCached, AShortTextHasTheChunksOfTheWindow) {
  const CachedSizes s{512, 2, 1, 8};
  box.set_threads(1);
  const Tensor qkv = box.random({s.T, s.columns()}, -4, 4);
  const Tensor text = qkv.slice(0, 301), want = whole(qkv, s).slice(0, 301);
  use_threads();
  EXPECT_TRUE(same_bits(in_pieces(text, s, 7, s.T), want));
  if (dtype == Dtype::F32) {
    EXPECT_FALSE(same_bits(whole(text, s), want));
    EXPECT_FALSE(same_bits(in_pieces(text, s, 7, 301), want));
  }
  EXPECT_FALSE(same_bits(in_pieces(text, s, 7, s.T, 1), want));
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsCached, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);

}  // namespace
}  // namespace ladder::test
