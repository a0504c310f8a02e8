// Attention over a cache, against `ref` in double: the rows of attention over the whole sequence.
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

/// The tokens of qkv from `first` on, and keys and values of all up to `count` more: behind them
/// the cache is NaN.
struct CachedCall {
  Tensor qkv, cache;
};

class AttentionCached : public VsRef {
 protected:
  CachedCall cut(const Tensor& qkv, int64_t NH, int64_t NKV, int64_t first, int64_t count) {
    const int64_t T = qkv.dim(1), N = qkv.dim(2), HS = N / (NH + 2 * NKV), r = NH / NKV;
    const CachedCall call{host.empty(qkv.dtype, {count, N}),
                          host.empty(qkv.dtype, {T, 2 * NKV * HS})};
    for (int64_t i = 0; i < count * N; ++i) set(call.qkv, i, at(qkv, first * N + i));
    for (int64_t t = 0; t < first + count; ++t)
      for (int64_t i = 0; i < 2 * NKV * HS; ++i)
        set(call.cache, t * 2 * NKV * HS + i,
            at(qkv, t * N + i / (2 * HS) * (r + 2) * HS + r * HS + i % (2 * HS)));
    return call;
  }
};

TEST_F(AttentionCached, RowsOfTheWholeSequence) {
  const int64_t T = 300;
  struct Heads {
    int64_t NH, NKV, HS;
  };
  for (const Dtype dtype : kReals)
    for (const auto& [NH, NKV, HS] : {Heads{4, 2, 16}, {3, 3, 5}, {2, 1, 64}}) {
      const Tensor qkv = host.random(dtype, {1, T, (NH + 2 * NKV) * HS}, -2, 2);
      const Tensor out64 = exact.empty({1, T, NH * HS}), lse = exact.empty({1, NH, T});
      ref.attention_forward(exact.ctx(), out64, lse, wide(qkv));
      for (const auto& [first, count] :
           {std::pair<int64_t, int64_t>{0, 1}, {0, 40}, {33, 1}, {34, 2}, {95, 7}, {299, 1}}) {
        SCOPED_TRACE(std::to_string(first) + "+" + std::to_string(count));
        const CachedCall call = cut(qkv, NH, NKV, first, count);
        const Tensor got = out(dtype, {count, NH * HS});
        k.attention_cached(ctx, got, up(call.qkv), up(call.cache), NH, {T, first});
        const Tensor want = out64.view({T, NH * HS}).slice(first, count);
        EXPECT_LT(relative_error(down(got), want), dtype == Dtype::F32 ? 2e-6 : 1e-2);
        dut().clear();
      }
    }
}

TEST_F(AttentionCached, WrongPlacesAreRefused) {
  const Tensor x = host.empty({2, 8}), qkv = host.empty({2, 24}), cache = host.empty({9, 16});
  const auto call = [&](int64_t T, int64_t first, int64_t heads) {
    k.attention_cached(ctx, up(x), up(qkv), up(cache), heads, {T, first});
  };
  EXPECT_NO_THROW(call(64, 7, 2));
  EXPECT_THROW(call(64, 8, 2), CheckError);  // the cache ends
  EXPECT_THROW(call(8, 7, 2), CheckError);   // the sequence ends
  EXPECT_THROW(call(64, -1, 2), CheckError);
  EXPECT_THROW(call(64, 7, 3), CheckError);
}

}  // namespace
}  // namespace ladder::test
