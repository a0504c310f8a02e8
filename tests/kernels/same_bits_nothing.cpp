// Sums without terms. Such a sum is -0, and every sum begins at -0. So a rank without a term of
// a sum changes no bit of the ranks that have some.
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

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
