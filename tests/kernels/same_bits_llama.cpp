// What the block of LLaMA has besides: operands that are absent, gates, turned heads. Absent ones
// give the bits of ones that change nothing, so what is known of sums with them holds without them.
#include <array>

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

TEST_P(SameBitsLlama, AGateDoesNotFeelItsPosition) {
  const int64_t n = 20107;
  const Tensor x = box.random({2 * n}, -9, 9), d = box.random({n});
  const Tensor out = box.empty({n}), dx = box.empty({2 * n});
  k.swiglu_forward(ctx, out, x);
  k.swiglu_backward(ctx, dx, d, x);
  use_threads();
  const Tensor out_parts = box.empty({n}), dx_parts = box.empty({2 * n});
  const std::array<int64_t, 9> cuts = {0, 1, 8, 65, 96, 131, 170, 9011, n};
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int64_t begin = cuts[i], count = cuts[i + 1] - begin;
    const Tensor inp = x.slice(2 * begin, 2 * count);
    k.swiglu_forward(ctx, out_parts.slice(begin, count), inp);
    k.swiglu_backward(ctx, dx_parts.slice(2 * begin, 2 * count), d.slice(begin, count), inp);
  }
  EXPECT_TRUE(same_bits(out_parts, out));
  EXPECT_TRUE(same_bits(dx_parts, dx));
}

TEST_P(SameBitsLlama, RanksTurnTheirGroupsOfHeads) {
  const int64_t B = 2, T = 20, NKV = 4;
  for (const auto& [r, HS] : {std::array{1, 16}, std::array{3, 6}, std::array{2, 66}}) {
    const int64_t row = NKV * (r + 2) * HS;
    const Tensor angles = box.angles(T + 2, HS), qkv = box.random({B, T, row});
    for (const bool back : {false, true}) {
      const Tensor whole = box.copy(qkv);
      k.rope(ctx, whole, angles, NKV * r, back);
      use_threads();
      for (const int64_t tp : {2, 4})
        for (int64_t rank = 0; rank < tp; ++rank) {
          const int64_t begin = rank * row / tp, count = row / tp;
          const Tensor own = columns(qkv, begin, count);
          k.rope(ctx, own, angles, NKV * r / tp, back);
          EXPECT_TRUE(same_bits(own, columns(whole, begin, count))) << "tp " << tp;
        }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsLlama, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);

}  // namespace
}  // namespace ladder::test
