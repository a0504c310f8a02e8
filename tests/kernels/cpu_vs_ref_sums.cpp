// Products and sums over tokens, where an error of K eps sum |terms| is allowed and no more.
#include "kernels/limbs.h"
#include "tests/kernels/cpu_vs_ref.h"

namespace ladder::test {
namespace {

struct Sizes {
  int64_t rows, N, K;
};
// 1 x 1 x 1, less than a tile, not multiples of anything, several slabs, many tiles.
constexpr Sizes kProducts[] = {{1, 1, 1},    {3, 5, 7},      {17, 33, 16},   {5, 100, 3},
                               {33, 17, 65}, {64, 384, 128}, {70, 131, 777}, {257, 70, 2049},
                               {1, 50, 384}, {450, 1100, 40}};

TEST_F(CpuVsRef, MatmulForward) {
  for (const auto& [rows, N, K] : kProducts)
    for (const int leaves : {1, 2, 8}) {
      const Tensor inp = fast.random({rows, K}), w = fast.random({N, K}), bias = fast.random({N});
      const Tensor got = fast.empty({rows, N}), want = exact.empty({rows, N});
      const Tensor terms = exact.empty({rows, N});
      cpu.matmul_forward(fast.ctx(), got, inp, w, bias, leaves);
      ref.matmul_forward(exact.ctx(), want, wide(inp), wide(w), wide(bias), leaves);
      ref.matmul_forward(exact.ctx(), terms, size(inp), size(w), size(bias), leaves);
      const double roundings = sum_roundings(K, leaves);
      expect_near("forward", got, want,
                  [&](int64_t i) { return kRound * roundings * at(terms, i); });
    }
}

TEST_F(CpuVsRef, MatmulBackwardInput) {
  for (const auto& [rows, K, N] : kProducts)
    for (const int leaves : {1, 2, 8}) {
      const Tensor dout = fast.random({rows, N}), w = fast.random({N, K});
      const Tensor got = fast.empty({rows, K}), want = exact.empty({rows, K});
      const Tensor terms = exact.empty({rows, K});
      cpu.matmul_backward_input(fast.ctx(), got, dout, w, leaves);
      ref.matmul_backward_input(exact.ctx(), want, wide(dout), wide(w), leaves);
      ref.matmul_backward_input(exact.ctx(), terms, size(dout), size(w), leaves);
      const double roundings = sum_roundings(N, leaves);
      expect_near("backward input", got, want,
                  [&](int64_t i) { return kRound * roundings * at(terms, i); });
    }
}

struct Batch {
  int64_t B, T, N, K;
};
constexpr Batch kBatches[] = {{1, 1, 1, 1},    {3, 5, 7, 3},     {5, 1, 33, 17}, {300, 1, 9, 5},
                              {12, 16, 40, 9}, {2, 600, 13, 31}, {64, 33, 7, 20}};

TEST_F(CpuVsRef, MatmulBackwardWeight) {
  for (const auto& [B, T, N, K] : kBatches)
    for (const Into into : {Into::Write, Into::Add}) {
      const Tensor dout = fast.random({B, T, N}), inp = fast.random({B, T, K});
      const Tensor got = fast.random({N, K}), want = wide(got), terms = size(got);
      cpu.matmul_backward_weight(fast.ctx(), got, dout, inp, into);
      ref.matmul_backward_weight(exact.ctx(), want, wide(dout), wide(inp), into);
      ref.matmul_backward_weight(exact.ctx(), terms, size(dout), size(inp), into);
      const double roundings = sum_roundings(B * T, B);
      expect_near("backward weight", got, want,
                  [&](int64_t i) { return kRound * roundings * at(terms, i); });
    }
}

/// Roundings in a sum over tokens: leaves of a sequence, then sequences.
double token_roundings(int64_t B, int64_t T) {
  return sum_roundings(T, kLeaves) + sum_roundings(B, B);
}

TEST_F(CpuVsRef, BiasBackward) {
  for (const auto& [B, T, N, K] : kBatches)
    for (const Into into : {Into::Write, Into::Add}) {
      const Tensor dout = fast.random({B, T, N});
      const Tensor got = fast.random({N}), want = wide(got), terms = size(got);
      cpu.bias_backward(fast.ctx(), got, dout, into);
      ref.bias_backward(exact.ctx(), want, wide(dout), into);
      ref.bias_backward(exact.ctx(), terms, size(dout), into);
      const double roundings = token_roundings(B, T);
      expect_near("bias", got, want, [&](int64_t i) { return kRound * roundings * at(terms, i); });
    }
}

TEST_F(CpuVsRef, NormBackwardWeight) {
  for (const auto& [B, T, C, K] : kBatches)
    for (const Into into : {Into::Write, Into::Add}) {
      const Tensor dout = fast.random({B, T, C}), inp = fast.random({B, T, C});
      const Tensor mean = fast.random({B, T}), rstd = fast.random({B, T}, 0.5, 2);
      const Tensor dw = fast.random({C}), db = fast.random({C});
      const Tensor dw_want = wide(dw), db_want = wide(db), dw_terms = size(dw), db_terms = size(db);
      cpu.norm_backward_weight(fast.ctx(), dw, db, dout, inp, mean, rstd, into);
      ref.norm_backward_weight(exact.ctx(), dw_want, db_want, wide(dout), wide(inp), wide(mean),
                               wide(rstd), into);
      // |inp - mean| is at most 1 + |mean|: the terms of a norm with mean -1 - |mean| of 0.
      const Tensor below = map(mean, [](double v) { return -1 - std::abs(v); });
      const Tensor nothing = exact.filled(inp.shape, 0);
      ref.norm_backward_weight(exact.ctx(), dw_terms, db_terms, size(dout), nothing, below,
                               wide(rstd), into);
      const double roundings = token_roundings(B, T) + 2;
      expect_near("dw", dw, dw_want,
                  [&](int64_t i) { return kRound * roundings * at(dw_terms, i); });
      expect_near("db", db, db_want,
                  [&](int64_t i) { return kRound * roundings * at(db_terms, i); });
    }
}

TEST_F(CpuVsRef, EmbedBackward) {
  for (const auto& [B, T, C, K] : kBatches)
    for (const Into into : {Into::Write, Into::Add}) {
      const int64_t V = 11, P = T + 3;
      const Tensor dout = fast.random({B, T, C}), tokens = fast.tokens({B, T}, V);
      const Tensor words = fast.random({V, C}), places = fast.random({P, C});
      const Tensor words_want = wide(words), places_want = wide(places);
      const Tensor words_terms = size(words), places_terms = size(places);
      cpu.embed_backward(fast.ctx(), words, places, dout, tokens, into);
      ref.embed_backward(exact.ctx(), words_want, places_want, wide(dout), tokens, into);
      ref.embed_backward(exact.ctx(), words_terms, places_terms, size(dout), tokens, into);
      const double roundings = sum_roundings(B * T, B);
      expect_near("dwte", words, words_want,
                  [&](int64_t i) { return kRound * roundings * at(words_terms, i); });
      expect_near("dwpe", places, places_want,
                  [&](int64_t i) { return kRound * roundings * at(places_terms, i); });
    }
}

TEST_F(CpuVsRef, SquaredNormGivesTheLimbsOfExactSums) {
  const int64_t R = 5, N = 325;
  const Tensor x = fast.empty({R, N});
  // Few bits each, so that a leaf is exact in any order; far below and far above 1. Neighboring
  // leaves are of a size in the first row, and of two or more sizes in the others.
  const int exponents[] = {0, -50, 55, 120, -149};
  for (int64_t i = 0; i < x.size(); ++i)
    set(x, i,
        std::ldexp(static_cast<double>(i * 37 % 31 - 15),
                   exponents[(i / N + i % N / kNormLeaf * (i / N)) % 5]));
  for (int64_t i = 0; i < kNormLeaf; ++i) set(x, 2 * kNormLeaf + i, 0);
  set(x, 4 * N + 3, std::nan(""));
  set(x, 4 * N + 40, INFINITY);
  const Tensor got = fast.zeros(Dtype::I64, {R, kLimbs}), want = exact.zeros(Dtype::I64, got.shape);
  for (int twice = 0; twice < 2; ++twice) {
    cpu.squared_norm(fast.ctx(), got, x);
    ref.squared_norm(exact.ctx(), want, wide(x));
  }
  EXPECT_TRUE(same_bits(got, want));
  EXPECT_EQ(want.data<int64_t>()[5 * kLimbs - 1], 4);
}

TEST_F(CpuVsRef, SquaredNormOfOneLongRow) {
  const int64_t N = 100003;
  const Tensor x = fast.random({1, N});
  const Tensor got = fast.zeros(Dtype::I64, {1, kLimbs});
  cpu.squared_norm(fast.ctx(), got, x);
  double want = 0;
  for (int64_t i = 0; i < N; ++i) want += at(x, i) * at(x, i);
  double value = 0;
  for (int64_t limb = kLimbs - 2; limb >= 0; --limb)
    value += std::ldexp(static_cast<double>(got.data<int64_t>()[limb]),
                        static_cast<int>(32 * limb) - 80);
  EXPECT_NEAR(value, want, 1e-10 * want);
}

}  // namespace
}  // namespace ladder::test
