// Embeddings: rows that many tokens meet, one meets, none meets; tokens outside the vocabulary.
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

class Embed : public VsRef {
 protected:
  /// Every seventh is another rank's.
  Tensor some_tokens(int64_t B, int64_t T, int64_t V) {
    const Tensor tokens = host.tokens({B, T}, V);
    for (int64_t i = 3; i < tokens.size(); i += 7) tokens.data<int32_t>()[i] = kElsewhere;
    return tokens;
  }
};

struct Sizes {
  int64_t B, T, C, V, P;
};
constexpr Sizes kSizes[] = {{1, 1, 1, 1, 1},
                            {3, 5, 7, 11, 9},
                            {12, 16, 40, 5, 16},
                            {2, 9, 264, 7, 9},
                            {3, 30, 17, 300, 33}};

TEST_F(Embed, Forward) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, C, V, P] : kSizes) {
      const Tensor tokens = some_tokens(B, T, V), wte = host.random(dtype, {V, C});
      const Tensor wpe = host.random(dtype, {P, C});
      const Tensor got = out(dtype, {B, T, C}), want = exact.empty({B, T, C});
      for (const Tensor& places : {wpe, Tensor{}}) {
        k.embed_forward(ctx, got, share(tokens), up(wte), up(places));
        ref.embed_forward(exact.ctx(), want, tokens, wide(wte), wide(places));
        expect_near("out", got, want, [](int64_t) { return 2 * kRound; });
      }
    }
}

TEST_F(Embed, Backward) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, C, V, P] : kSizes)
      for (const Into into : {Into::Write, Into::Add}) {
        const Tensor dout = host.random(dtype, {B, T, C}), tokens = some_tokens(B, T, V);
        const Tensor dwte0 = host.random({V, C}), dwpe0 = host.random({P, C});
        const Tensor dwte = up(dwte0), dwpe = up(dwpe0);
        const Tensor words = wide(dwte0), places = wide(dwpe0);
        const Tensor word_terms = size(dwte0), place_terms = size(dwpe0);
        k.embed_backward(ctx, dwte, dwpe, up(dout), share(tokens), into);
        ref.embed_backward(exact.ctx(), words, places, wide(dout), tokens, into);
        ref.embed_backward(exact.ctx(), word_terms, place_terms, size(dout), tokens, into);
        const double roundings = interleaved_roundings(T, 1) + interleaved_roundings(B, 8);
        expect_near("dwte", dwte, words,
                    [&](int64_t i) { return kRound * roundings * at(word_terms, i); });
        expect_near("dwpe", dwpe, places, [&](int64_t i) {
          return kRound * interleaved_roundings(B, 1) * at(place_terms, i);
        });
        const Tensor alone = up(dwte0);
        k.embed_backward(ctx, alone, {}, up(dout), share(tokens), into);
        EXPECT_TRUE(same_bits(down(alone), down(dwte))) << "without positions";
      }
}

/// There are more places than a block sorts, so runs are merged. One token has most places.
TEST_F(Embed, BackwardOfManyTokens) {
  const int64_t B = 3, T = 3000, C = 4, V = 300;
  const Tensor dout = host.random({B, T, C}), tokens = some_tokens(B, T, V);
  for (int64_t i = 0; i < tokens.size(); i += 2) tokens.data<int32_t>()[i] = 17;
  const Tensor dwte = out(Dtype::F32, {V, C}), want = exact.empty({V, C}),
               terms = exact.empty({V, C});
  k.embed_backward(ctx, dwte, {}, up(dout), share(tokens), Into::Write);
  ref.embed_backward(exact.ctx(), want, {}, wide(dout), tokens, Into::Write);
  ref.embed_backward(exact.ctx(), terms, {}, size(dout), tokens, Into::Write);
  expect_near("dwte", dwte, want, [&](int64_t i) { return 64 * kRound * at(terms, i); });
}

TEST_F(Embed, BackwardHasTheSameBitsEachTime) {
  const Tensor dout = up(host.random({4, 50, 24}, -1, 1));
  const Tensor tokens = share(host.tokens({4, 50}, 3));
  const auto run = [&] {
    const Tensor dwte = out(Dtype::F32, {3, 24}), dwpe = out(Dtype::F32, {50, 24});
    k.embed_backward(ctx, dwte, dwpe, dout, tokens, Into::Write);
    return down(dwte);
  };
  const Tensor first = run();
  for (int repeat = 0; repeat < 5; ++repeat) EXPECT_TRUE(same_bits(run(), first));
}

}  // namespace
}  // namespace ladder::test
