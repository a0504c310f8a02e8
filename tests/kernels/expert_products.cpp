// The products of experts. They are the products of each expert's rows alone. The order of the sums
// in a weight gradient does not depend on how a sequence is cut; nor a batch: ../layouts.txt.
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/token_leaves.h"
#include "tests/kernels/experts.h"
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

/// A batch: the experts that its tokens take. Each pair of both has a row of inp and of dout.
struct Batch {
  Tensor expert, inp, dout;  ///< (B,T,takes), (B,T,takes K), (B,T,takes N)
};

class ExpertProducts : public SameBits {
 protected:
  static constexpr int64_t kE = 5, kN = 34, kK = 35, kTakes = 3;

  /// AMX sums BF16 in steps of 32 rows, here of an expert's own rows: kernels/cpu/gemm/bf16.h.
  const bool as_dense = dtype != Dtype::BF16;

  void SetUp() override { use_threads(); }

  /// Expert 1 is taken by no token.
  Batch make(int64_t B, int64_t T) {
    const Tensor expert = choices(box, B, T, kTakes, kE - 1);
    for (int64_t i = 0; i < expert.size(); ++i) {
      int32_t& e = expert.data<int32_t>()[i];
      e += e >= 1;
    }
    return {expert, spread(box, {B, T, kTakes * kK}), spread(box, {B, T, kTakes * kN})};
  }
  /// Tokens `ranges` of sequences [b, b + n).
  Batch part(const Batch& x, int64_t b, int64_t n, const std::vector<Range>& ranges) {
    const auto cut = [&](const Tensor& all) { return tokens_of(all, b, n, ranges); };
    return {cut(x.expert), cut(x.inp), cut(x.dout)};
  }

  /// The rows of pairs (B,T,takes C), sorted by expert; NaN behind them.
  Tensor rows_of(const Tensor& pairs, const ExpertRows& rows) {
    const int64_t M = rows.from.size(), C = pairs.size() / M;
    const Tensor to = box.filled({M, C}, NAN);
    for (int64_t i = 0; i < used(rows) * C; ++i)
      set(to, i, at(pairs, rows.from.data<int32_t>()[i / C] * C + i % C));
    return to;
  }

  /// dw (+)= what a call adds.
  void weight_gradient(const Tensor& dw, const Batch& x, int chunks, Into into,
                       int64_t capacity = 0) {
    Ctx own = ctx;
    own.token_chunks = chunks;
    const ExpertRows rows = sorted(box, x.expert, kE, capacity);
    k.grouped_matmul_backward_weight(own, dw, rows_of(x.dout, rows), rows_of(x.inp, rows), rows,
                                     into);
  }
  Tensor weight_gradient(const Batch& x, int chunks = kTokenChunks, int64_t capacity = 0) {
    const Tensor dw = box.empty(sums, {kE, kN, kK});
    weight_gradient(dw, x, chunks, Into::Write, capacity);
    return dw;
  }
};

TEST_P(ExpertProducts, AreThoseOfEachExpertAlone) {
  const int64_t T = 90, K = 45, N = 50;
  for (const int leaves : {1, 8}) {
    const Tensor expert = choices(box, 1, T, kTakes, kE), w = box.random({kE, N, K});
    const ExpertRows rows = sorted(box, expert, kE, 40);
    const int64_t M = rows.from.size(), filled = used(rows);
    ASSERT_LT(filled, M);
    const Tensor inp = box.random({M, K}), dout = box.random({M, N});
    for (int64_t i = filled * K; i < M * K; ++i) set(inp, i, NAN);
    const Tensor out = box.filled({M, N}, 7), dinp = box.filled({M, K}, 7);
    const Tensor want = box.filled({M, N}, 7), dwant = box.filled({M, K}, 7);
    k.grouped_matmul_forward(ctx, out, inp, w, rows, leaves);
    k.grouped_matmul_backward_input(ctx, dinp, dout, w, rows, leaves);
    for (int64_t e = 0; e < kE; ++e) {
      const int64_t first = rows.offsets.data<int32_t>()[e];
      const int64_t count = rows.offsets.data<int32_t>()[e + 1] - first;
      const Tensor of = w.slice(e, 1).view({N, K});
      k.matmul_forward(ctx, want.slice(first, count), inp.slice(first, count), of, {}, leaves);
      k.matmul_backward_input(ctx, dwant.slice(first, count), dout.slice(first, count), of, leaves);
    }
    EXPECT_TRUE(same_bits(out, want));  // rows behind the last are not touched
    EXPECT_TRUE(same_bits(dinp, dwant));
  }
}

// Tokens that an expert does not take are zeros in the product of all tokens: they change no sum.
TEST_P(ExpertProducts, WeightGradientsAreThoseOfTokensLeftOut) {
  for (const auto& [B, T] :
       {std::array{1, 7}, std::array{5, 40}, std::array{3, 130}, std::array{1, 1100}}) {
    const Batch x = make(B, T);
    const Tensor got = weight_gradient(x);
    for (int64_t e = 0; e < kE; ++e) {
      const Tensor inp = box.filled({B, T, kK}, 0), dout = box.filled({B, T, kN}, 0);
      for (int64_t pair = 0; pair < x.expert.size(); ++pair) {
        if (x.expert.data<int32_t>()[pair] != e) continue;
        const int64_t t = pair / kTakes;
        for (int64_t c = 0; c < kK; ++c) set(inp, t * kK + c, at(x.inp, pair * kK + c));
        for (int64_t c = 0; c < kN; ++c) set(dout, t * kN + c, at(x.dout, pair * kN + c));
      }
      const Tensor want = box.empty(sums, {kN, kK});
      k.matmul_backward_weight(ctx, want, dout, inp, Into::Write);
      for (int64_t i = 0; as_dense && i < want.size(); ++i)  // of 0 and -0, too
        ASSERT_EQ(at(got, e * kN * kK + i), at(want, i)) << B << " x " << T << ", expert " << e;
      EXPECT_LT(relative_error(got.slice(e, 1).view({kN, kK}), want), 1e-5);
    }
  }
}

TEST_P(ExpertProducts, RanksThatShareSequencesGiveTheBitsOfOne) {
  const int64_t T = 512;
  const Batch x = make(1, T);
  const Tensor whole = weight_gradient(x);
  for (const int64_t cp : {2, 4, 8})
    for (const bool folded : {true, false}) {
      std::vector<Tensor> ranks;
      for (int64_t rank = 0; rank < cp; ++rank) {
        const auto [early, late] = fold(rank, cp, T);
        const std::vector<Range> zigzag{early, late}, neighbors{leaf(rank, cp, T)};
        ranks.push_back(weight_gradient(part(x, 0, 1, folded ? zigzag : neighbors),
                                        kTokenChunks / static_cast<int>(cp)));
      }
      EXPECT_EQ(bool(same_bits(join(ranks), whole)), folded) << "cp " << cp;
    }
}

TEST_P(ExpertProducts, NoTokensAreNothing) {
  const Batch x = make(2, 20);
  const Tensor dw = weight_gradient(x), before = box.random(sums, {kE, kN, kK});
  const Tensor added = box.copy(before);
  weight_gradient(added, x, kTokenChunks, Into::Add);
  for (int64_t i = kN * kK; i < 2 * kN * kK; ++i) {
    ASSERT_TRUE(is_minus_zero(at(dw, i)));
    ASSERT_EQ(at(added, i), at(before, i));
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, ExpertProducts, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);

}  // namespace
}  // namespace ladder::test
