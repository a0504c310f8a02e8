// What only a block of LLaMA has: operands that are absent. An absent operand
// gives the bits of an operand that changes nothing. So what is known of sums with the operand
// holds without it.
//
// And sums without terms. Such a sum is -0, and every sum begins at -0. So a rank without a term of
// a sum changes no bit of the ranks that have some.
#include <array>
#include <cmath>

#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

class SameBitsLlama : public SameBits {};

TEST_P(SameBitsLlama, AnAbsentBiasIsMinusZero) {
  const int64_t B = 2, T = 40, C = 133;  // worth several threads
  const Tensor x = box.random({B, T, C}), d = box.random({B, T, C}), w = box.random({C});
  for (int64_t i = 0; i < 20; ++i) set(x, i, -0.0), set(d, i, -0.0);
  const Tensor nothing = box.filled({C}, -0.0), got = box.empty(x.shape), want = box.empty(x.shape);
  k.residual_forward(ctx, want, x, d, nothing);
  use_threads();
  k.residual_forward(ctx, got, x, d, Tensor{});
  EXPECT_TRUE(same_bits(got, want)) << "residual";
  for (const Tensor& mean : {box.empty(sums, {B, T}), Tensor{}}) {
    const Tensor rstd = box.empty(sums, {B, T});
    k.norm_forward(ctx, want, mean, rstd, x, w, nothing);
    k.norm_forward(ctx, got, mean, rstd, x, w, Tensor{});
    EXPECT_TRUE(same_bits(got, want)) << "norm";
  }
}

TEST_P(SameBitsLlama, AbsentPositionsAreMinusZero) {
  const int64_t B = 2, T = 40, C = 133, V = 9;
  const Tensor tokens = box.tokens({B, T}, V), wte = box.random({V, C}),
               dout = box.random({B, T, C});
  tokens.data<int32_t>()[3] = kElsewhere;
  for (int64_t i = 0; i < V * C; i += 7) set(wte, i, -0.0);
  const Tensor got = box.empty({B, T, C}), want = box.empty({B, T, C});
  const Tensor words = box.empty(sums, {V, C}), alone = box.empty(sums, {V, C});
  k.embed_forward(ctx, want, tokens, wte, box.filled({T, C}, -0.0));
  k.embed_backward(ctx, words, box.empty(sums, {T, C}), dout, tokens, Into::Write);
  use_threads();
  k.embed_forward(ctx, got, tokens, wte, Tensor{});
  k.embed_backward(ctx, alone, Tensor{}, dout, tokens, Into::Write);
  EXPECT_TRUE(same_bits(got, want));
  EXPECT_TRUE(same_bits(alone, words));
}

TEST_P(SameBitsLlama, AnAbsentMeanIsZero) {
  for (const auto& [B, T, C] : {std::array{2, 5, 7}, std::array{3, 40, 133}}) {
    const Tensor x = box.random({B, T, C}, -1, 3), d = box.random({B, T, C}), w = box.random({C});
    const Tensor rstd = box.random(sums, {B, T}, 0.5, 2), zeros = box.filled(sums, {B, T}, 0);
    for (const Into into : {Into::Write, Into::Add}) {
      const Tensor dw = box.filled(sums, {C}, 0.3), alone = box.copy(dw), db = box.copy(dw);
      k.norm_backward_weight(ctx, dw, db, d, x, zeros, rstd, into);
      use_threads();
      k.norm_backward_weight(ctx, alone, Tensor{}, d, x, Tensor{}, rstd, into);
      EXPECT_TRUE(same_bits(alone, dw)) << "T " << T;
    }
    // Negative control: the gradient of a mean that is there.
    const Tensor got = box.empty(x.shape), other = box.empty(x.shape);
    k.norm_backward_input(ctx, got, d, x, w, Tensor{}, rstd);
    k.norm_backward_input(ctx, other, d, x, w, zeros, rstd);
    EXPECT_GT(relative_error(got, other), 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsLlama, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);

class SameBitsNothing : public SameBits {
 protected:
  /// Products of BF16 may go in pairs, whose sums begin at +0: kernels/cpu/gemm/bf16.h.
  const bool products_too = dtype != Dtype::BF16;

  void SetUp() override { use_threads(); }

  /// How many elements are -0.
  static int64_t nothings(const Tensor& x) {
    int64_t count = 0;
    for (int64_t i = 0; i < x.size(); ++i) count += is_minus_zero(at(x, i));
    return count;
  }
  void expect_all(const Tensor& x, const char* what) { EXPECT_EQ(nothings(x), x.size()) << what; }
};

TEST_P(SameBitsNothing, IsTheSumOfNoTerms) {
  const int64_t C = 37, N = 21;
  const Tensor db = box.filled(sums, {C}, 1), dn = box.filled(sums, {C}, 1);
  const Tensor dw = box.filled(sums, {N, C}, 1), out = box.filled({3, N}, 1);
  for (const auto& [B, T] : {std::pair{0, 4}, {2, 0}}) {
    const Tensor d = box.empty({B, T, C}), e = box.empty({B, T, N}), stat = box.empty(sums, {B, T});
    k.bias_backward(ctx, db, d, Into::Write);
    expect_all(db, "bias");
    k.norm_backward_weight(ctx, db, dn, d, d, stat, stat, Into::Write);
    expect_all(db, "norm, w");
    expect_all(dn, "norm, b");
    k.matmul_backward_weight(ctx, dw, e, d, Into::Write);
    if (products_too) expect_all(dw, "matmul");
  }
  k.matmul_forward(ctx, out, box.empty({3, 0}), box.empty({N, 0}), Tensor{}, kLeaves);
  if (products_too) expect_all(out, "product");
}

TEST_P(SameBitsNothing, IsInRowsThatAreNotMet) {
  const int64_t B = 2, T = 5, C = 37, V = 9;
  const Tensor tokens = box.tokens({B, T}, 1), dout = box.random({B, T, C}, 1, 2);
  const Tensor dwte = box.empty(sums, {V, C}), dwpe = box.empty(sums, {T + 2, C});
  k.embed_backward(ctx, dwte, dwpe, dout, tokens, Into::Write);
  expect_all(dwte.slice(1, V - 1), "tokens");
  expect_all(dwpe.slice(T, 2), "positions");
  EXPECT_EQ(nothings(dwte) + nothings(dwpe), (V - 1 + 2) * C);
  // Adding -0 changes nothing.
  for (const double before : {0.0, -0.0}) {
    const Tensor kept = box.filled(sums, {V, C}, before);
    k.embed_backward(ctx, kept, dwpe, dout, tokens, Into::Add);
    EXPECT_EQ(nothings(kept), std::signbit(before) ? (V - 1) * C : 0);
  }
  // A token that is elsewhere has a row of -0, because ranks add their rows.
  for (int64_t i = 0; i < tokens.size(); ++i) tokens.data<int32_t>()[i] = kElsewhere;
  const Tensor out = box.filled({B, T, C}, 1), w = box.random({V, C});
  k.embed_forward(ctx, out, tokens, w, w);
  expect_all(out, "elsewhere");
}

// The sum of two -0 is -0. A +0 anywhere on the way would make it +0.
TEST_P(SameBitsNothing, IsWhatSumsBeginAt) {
  for (const int64_t T : {3, 130}) {
    const int64_t B = 3, C = 37, N = 21;
    const Tensor d = box.filled({B, T, C}, -0.0), e = box.filled({B, T, N}, 1);
    const Tensor stat = box.filled(sums, {B, T}, 1), tokens = box.tokens({B, T}, 1);
    const Tensor db = box.empty(sums, {C}), dn = box.empty(sums, {C});
    k.bias_backward(ctx, db, d, Into::Write);
    expect_all(db, "bias");
    k.norm_backward_weight(ctx, dn, db, d, box.filled({B, T, C}, 2), stat, stat, Into::Write);
    expect_all(dn, "norm, w");
    expect_all(db, "norm, b");
    const Tensor dwte = box.empty(sums, {2, C}), dwpe = box.empty(sums, {T, C});
    k.embed_backward(ctx, dwte, dwpe, d, tokens, Into::Write);
    expect_all(dwte, "tokens");
    expect_all(dwpe, "positions");
    const Tensor dw = box.empty(sums, {N, C});
    k.matmul_backward_weight(ctx, dw, e, d, Into::Write);
    if (products_too) expect_all(dw, "matmul");
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsNothing, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);

}  // namespace
}  // namespace ladder::test
