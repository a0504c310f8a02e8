// The values of the forward operations, `ref` in double, against their formulas written out.
#include <algorithm>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class Forward : public ::testing::Test {
 protected:
  Sandbox box{ref_kernels(), Dtype::F64};
  const Kernels& k = ref_kernels();
  const Ctx& ctx = box.ctx();
};

TEST_F(Forward, Embed) {
  const int64_t B = 2, T = 3, C = 5, V = 7;
  const Tensor wte = box.random({V, C}), wpe = box.random({T + 1, C}), out = box.empty({B, T, C});
  const Tensor tokens = box.tokens({B, T}, V);
  k.embed_forward(ctx, out, tokens, wte, wpe);
  for (int64_t row = 0; row < B * T; ++row)
    for (int64_t c = 0; c < C; ++c)
      EXPECT_EQ(at(out, row * C + c),
                at(wte, tokens.data<int32_t>()[row] * C + c) + at(wpe, row % T * C + c));
}

TEST_F(Forward, Norm) {
  const Tensor inp = box.empty({1, 1, 3}), out = box.empty({1, 1, 3});
  const Tensor mean = box.empty({1, 1}), rstd = box.empty({1, 1});
  const Tensor w = box.random({3}), b = box.random({3});
  const double x[] = {1, 3, 8};  // mean 4, variance (9 + 1 + 16) / 3
  for (int c = 0; c < 3; ++c) set(inp, c, x[c]);
  k.norm_forward(ctx, out, mean, rstd, inp, w, b);
  EXPECT_EQ(at(mean, 0), 4);
  EXPECT_NEAR(at(rstd, 0), 1 / std::sqrt(26.0 / 3 + 1e-5), 1e-15);
  for (int c = 0; c < 3; ++c)
    EXPECT_NEAR(at(out, c), (x[c] - 4) * at(rstd, 0) * at(w, c) + at(b, c), 1e-15);
}

TEST_F(Forward, NormOfAConstantRowIsTheBias) {
  const Tensor inp = box.filled({1, 1, 4}, 7), out = box.empty({1, 1, 4}), b = box.random({4});
  const Tensor mean = box.empty({1, 1}), rstd = box.empty({1, 1});
  k.norm_forward(ctx, out, mean, rstd, inp, box.random({4}), b);
  EXPECT_TRUE(same_bits(out.view({4}), b));
}

TEST_F(Forward, GeluAtKnownPoints) {
  // PyTorch's gelu(approximate='tanh').
  const double x[] = {1, -1, 3, 0.5}, want[] = {0.8411919906082768, -0.15880800939172324,
                                                2.996362607918227, 0.34571400982514394};
  const Tensor inp = box.empty({4}), out = box.empty({4});
  for (int i = 0; i < 4; ++i) set(inp, i, x[i]);
  k.gelu_forward(ctx, out, inp);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(at(out, i), want[i], 1e-15);
}

TEST_F(Forward, AttentionHeadByHead) {
  const int64_t B = 2, T = 5, NH = 3, HS = 4, C = NH * HS;
  const Tensor qkv = box.random({B, T, 3 * C}, -2, 2), out = box.empty({B, T, C});
  const Tensor lse = box.empty({B, NH, T});
  k.attention_forward(ctx, out, lse, qkv);
  const auto column = [&](int64_t b, int64_t t, int64_t h, int which, int64_t d) {
    return at(qkv, (b * T + t) * 3 * C + (3 * h + which) * HS + d);
  };
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < NH; ++h)
      for (int64_t t = 0; t < T; ++t) {
        double sum = 0, value[HS] = {};
        for (int64_t u = 0; u <= t; ++u) {
          double score = 0;
          for (int64_t d = 0; d < HS; ++d) score += column(b, t, h, 0, d) * column(b, u, h, 1, d);
          const double weight = std::exp(score / std::sqrt(HS));
          sum += weight;
          for (int64_t d = 0; d < HS; ++d) value[d] += weight * column(b, u, h, 2, d);
        }
        EXPECT_NEAR(at(lse, (b * NH + h) * T + t), std::log(sum), 1e-14);
        for (int64_t d = 0; d < HS; ++d)
          EXPECT_NEAR(at(out, (b * T + t) * C + h * HS + d), value[d] / sum, 1e-14);
      }
}

TEST_F(Forward, AttentionSurvivesLargeScores) {
  const Tensor qkv = box.filled({1, 2, 3}, 1e3), out = box.empty({1, 2, 1});
  const Tensor lse = box.empty({1, 1, 2});
  k.attention_forward(ctx, out, lse, qkv);
  EXPECT_EQ(at(lse, 0), 1e6);
  EXPECT_NEAR(at(out, 1), 1e3, 1e-6);
}

TEST_F(Forward, CrossEntropyIsMinusLogSoftmax) {
  const int64_t B = 3, T = 5, V = 16, vocab = 7;
  const Tensor logits = box.random({B, T, V}, -3, 3), targets = box.tokens({B, T}, vocab);
  const Tensor losses = box.empty({B});
  k.cross_entropy(ctx, losses, Tensor{}, logits, targets, vocab, 0.5F);
  for (int64_t b = 0; b < B; ++b) {
    double want = 0;
    for (int64_t row = b * T; row < (b + 1) * T; ++row) {
      double sum = 0;
      for (int64_t v = 0; v < vocab; ++v) sum += std::exp(at(logits, row * V + v));
      want -= at(logits, row * V + targets.data<int32_t>()[row]) - std::log(sum);
    }
    EXPECT_NEAR(at(losses, b), want, 1e-13);  // `scale` is the gradient's only
  }
}

TEST_F(Forward, MatmulWithoutBias) {
  const Tensor inp = box.random({4, 3}), w = box.random({2, 3}), out = box.empty({4, 2});
  k.matmul_forward(ctx, out, inp, w, Tensor{}, kLeaves);
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t n = 0; n < 2; ++n) {
      double sum = 0;
      for (int64_t c = 0; c < 3; ++c) sum += at(inp, r * 3 + c) * at(w, n * 3 + c);
      EXPECT_NEAR(at(out, r * 2 + n), sum, 1e-15);
    }
}

TEST_F(Forward, GeluFarOut) {
  const Tensor inp = box.filled({2}, 40), out = box.empty({2});
  set(inp, 1, -40);
  k.gelu_forward(ctx, out, inp);
  EXPECT_EQ(at(out, 0), 40);
  EXPECT_EQ(at(out, 1), 0);
}

TEST_F(Forward, AttentionLooksOnlyBack) {
  const int64_t T = 6, C = 4;
  const Tensor qkv = box.random({1, T, 3 * C}), lse = box.empty({1, 2, T});
  const Tensor before = box.empty({1, T, C}), after = box.empty({1, T, C});
  k.attention_forward(ctx, before, lse, qkv);
  set(qkv, 4 * 3 * C + 5, 100);  // token 4
  k.attention_forward(ctx, after, lse, qkv);
  EXPECT_TRUE(same_bits(before.view({T, C}).first(4), after.view({T, C}).first(4)));
  EXPECT_FALSE(same_bits(before, after));
}

TEST_F(Forward, CrossEntropyIgnoresAndMasks) {
  const Tensor logits = box.random({2, 3, 16}), targets = box.tokens({2, 3}, 7);
  for (int t = 0; t < 3; ++t) targets.data<int32_t>()[t] = kIgnore;
  for (int64_t row = 0; row < 6; ++row)
    for (int64_t v = 7; v < 16; ++v) set(logits, row * 16 + v, 1e300);  // padding: never read
  const Tensor losses = box.empty({2}), dlogits = box.empty({2, 3, 16});
  k.cross_entropy(ctx, losses, dlogits, logits, targets, 7, 1);
  EXPECT_EQ(at(losses, 0), 0);
  EXPECT_GT(at(losses, 1), 0);
  for (int64_t i = 0; i < dlogits.size(); ++i)
    EXPECT_EQ(at(dlogits, i) == 0, i < 3 * 16 || i % 16 >= 7) << i;
}

TEST_F(Forward, LossOfEqualLogitsIsLogVocab) {
  const Tensor logits = box.filled({1, 1, 8}, 1000), targets = box.tokens({1, 1}, 7);
  const Tensor losses = box.empty({1});
  k.cross_entropy(ctx, losses, Tensor{}, logits, targets, 7, 1);
  EXPECT_NEAR(at(losses, 0), std::log(7.0), 1e-12);
}

TEST_F(Forward, ResidualAddScale) {
  const Tensor a = box.random({3, 5}), b = box.random({3, 5}), bias = box.random({5});
  const Tensor joined = box.empty({3, 5}), sum = box.empty({3, 5}), scaled = box.copy(a);
  k.residual_forward(ctx, joined, a, b, bias);
  k.add(ctx, sum, a, b);
  k.scale(ctx, scaled, 0.5F);
  for (int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(at(joined, i), at(a, i) + (at(b, i) + at(bias, i % 5)));
    EXPECT_EQ(at(sum, i), at(a, i) + at(b, i));
    EXPECT_EQ(at(scaled, i), at(a, i) / 2);
  }
}

}  // namespace
}  // namespace ladder::test
