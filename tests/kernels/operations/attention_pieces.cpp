// Attention in pieces, and at large scores, against `ref`: the same numbers into the same
// operation.
#include <algorithm>
#include <cmath>

#include "kernels/attention_rows.h"
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

struct Heads {
  int64_t NH, NKV, HS;
};

/// Relative to the length of a tensor. Sums are rounded; for 16 bits, weights are rounded, too.
double tolerance(Dtype dtype) { return dtype == Dtype::F32 ? 2e-6 : 1e-2; }

class AttentionPieces : public VsRef {
 protected:
  static Tensor like(const Tensor& x) { return out(x.dtype, x.shape); }

  static void expect_close(const char* what, const Tensor& got, const Tensor& want, double error) {
    EXPECT_LT(relative_error(down(got), want), error) << what;
  }
};

/// Queries of two ranks against keys before, among and behind them.
TEST_F(AttentionPieces, PiecesAsRef) {
  const int64_t T = 136, share = T / 2;  // chunks of 34 tokens: no multiple of a tile of any table
  const auto pieces = [&](const Heads& s, Dtype dtype) {
    for (const std::array<int64_t, 2> queries : {std::array<int64_t, 2>{0, 102}, {34, 68}})
      for (const int64_t keys : {0, 34, 68, 102}) {
        const AttentionPositions place{T, queries, keys};
        const Tensor q = host.random(dtype, {1, share, s.NH * s.HS}, -2, 2);
        const Tensor kv = host.random(dtype, {1, T / 4, 2 * s.NKV * s.HS}, -2, 2);
        const Tensor dout = host.random(dtype, q.shape), out = host.random(dtype, q.shape);
        const Tensor o = host.empty(q.shape), m = host.empty({1, s.NH, share});
        const Tensor l = host.empty(m.shape), lse = host.random(m.shape, 8, 9);
        const Tensor dq = host.empty(q.shape), dkv = host.empty(kv.shape);
        ref.attention_piece_forward(host.ctx(), o, m, l, q, kv, place);
        ref.attention_piece_backward(host.ctx(), dq, dkv, dout, q, kv, out, lse, place);
        const Tensor x = up(q), y = up(kv);
        const Tensor got_o = like(o), got_m = like(m), got_l = like(l);
        const Tensor got_dq = like(dq), got_dkv = like(dkv);
        k.attention_piece_forward(ctx, got_o, got_m, got_l, x, y, place);
        k.attention_piece_backward(ctx, got_dq, got_dkv, up(dout), x, y, up(out), up(lse), place);
        SCOPED_TRACE(std::to_string(queries[0]) + ", " + std::to_string(keys));
        for (int64_t i = 0; i < m.size(); ++i)  // infinite where there is no key
          EXPECT_TRUE(at(m, i) == at(down(got_m), i) ||
                      std::abs(at(m, i) - at(down(got_m), i)) < 1e-5);
        expect_close("l", got_l, l, 1e-5);
        expect_close("o", got_o, o, tolerance(dtype));
        expect_close("dq", got_dq, dq, tolerance(dtype));
        expect_close("dkv", got_dkv, dkv, tolerance(dtype));
        for (const Tensor& sum : {down(got_o), down(got_dq)})
          for (int64_t i = 0; i < sum.size(); ++i) {
            const int64_t row = i / (s.NH * s.HS) % share;
            if (queries[row < share / 2 ? 0 : 1] >= keys) continue;
            EXPECT_TRUE(is_minus_zero(at(sum, i))) << i;
          }
        dut().clear();
      }
  };
  for (const Dtype dtype : kReals) pieces({4, 2, 16}, dtype);
  for (const int64_t HS : {64, 128})
    with_each_engine(Dtype::BF16, HS, [&](bool) { pieces({2, 1, HS}, Dtype::BF16); });
  with_each_engine(Dtype::F32, 128, [&](bool) { pieces({2, 1, 128}, Dtype::F32); });
}

/// All scores are about -115. The weight of a key that is not there, with the score 0, would
/// overflow, and a tile has many such keys.
TEST_F(AttentionPieces, KeysPastTheLastHaveNoWeight) {
  const int64_t T = 136, HS = 16;
  for (const Dtype dtype : kReals) {
    const AttentionPositions place{T, {34, 68}, 0};
    const Tensor q = host.random(dtype, {1, T / 2, HS}, 2, 3);
    const Tensor kv = host.random(dtype, {1, T / 4, 2 * HS}, -12, -11);
    const Tensor dout = host.random(dtype, q.shape), out = host.empty(dtype, q.shape);
    const Tensor o = host.empty(q.shape), m = host.empty({1, 1, T / 2}), l = host.empty(m.shape);
    const Tensor lse = host.empty(m.shape), dq = up(o), dkv = up(host.empty(kv.shape));
    ref.attention_piece_forward(host.ctx(), o, m, l, q, kv, place);
    ref.attention_finish(host.ctx(), out, lse, o, m, l);
    k.attention_piece_backward(ctx, dq, dkv, up(dout), up(q), up(kv), up(out), up(lse), place);
    for (const Tensor& sum : {down(dq), down(dkv)})
      for (int64_t i = 0; i < sum.size(); ++i) ASSERT_TRUE(std::isfinite(at(sum, i))) << i;
    dut().clear();
  }
}

TEST_F(AttentionPieces, MergedAndFinishedAsRef) {
  const Tensor o = host.random({2, 5, 3 * 7}), later_o = host.random(o.shape);
  const Tensor m = host.random({2, 3, 5}, -9, 9), later_m = host.random(m.shape, -9, 9);
  const Tensor l = host.random(m.shape, 1, 9), later_l = host.random(m.shape, 1, 9);
  for (const auto& [x, y] : {std::array{m, l}, {later_m, later_l}}) {  // absent ones
    set(x, 4, -INFINITY);
    set(y, 4, 0);
  }
  for (int64_t d = 0; d < 7; ++d) {
    set(o, 4 * 21 + d, -0.0);
    set(later_o, 4 * 21 + d, -0.0);
  }
  set(l, 5, 0);
  set(m, 5, -INFINITY);
  set(later_l, 6, 0);
  set(later_m, 6, -INFINITY);
  const Tensor to_o = up(o), to_m = up(m), to_l = up(l);
  k.attention_merge(ctx, to_o, to_m, to_l, up(later_o), up(later_m), up(later_l));
  ref.attention_merge(host.ctx(), o, m, l, later_o, later_m, later_l);
  EXPECT_TRUE(same_bits(down(to_m), m));
  expect_close("l", to_l, l, 1e-6);
  expect_close("o", to_o, o, 1e-6);
  set(m, 4, 1);
  set(l, 4, 1);
  const Tensor out = host.empty(o.shape), lse = host.empty(m.shape);
  const Tensor y = like(out), to_lse = like(lse);
  ref.attention_finish(host.ctx(), out, lse, o, m, l);
  k.attention_finish(ctx, y, to_lse, up(o), up(m), up(l));
  expect_close("out", y, out, 1e-6);
  expect_close("lse", to_lse, lse, 1e-6);
}

TEST_F(AttentionPieces, ColumnsAsRef) {
  for (const Dtype to : kReals)
    for (const Dtype from : kReals) {
      const Tensor x = host.random(from, {3, 2, 11}), y = host.random(to, {3, 2, 9});
      const Tensor got = up(y);
      ref.copy_columns(host.ctx(), y, 1, x, 4, 7);
      k.copy_columns(ctx, got, 1, up(x), 4, 7);
      EXPECT_TRUE(same_bits(down(got), y));
    }
}

/// Scores as large as 1e9, as a bad step leaves them: neighbors of a float that large are 64 apart.
/// All tables must agree on what is left of the softmax there.
///
/// Queries and keys are whole numbers times a power of two, so that every table sums q . k exactly
/// and rounds the same score; eight channels, so that 1 / sqrt(8) does make it round.
struct LargeScores {
  static constexpr int64_t kTokens = 200, kHS = 8;
  static constexpr int kLargest = 22;  ///< scores to 8 * 15 * 15 * 2^22 / sqrt(8) = 2.7e9

  /// Whether scores differ by so much that the largest has all the weight.
  bool one_takes_all;
  Tensor qkv, dout;  ///< (1,T,3*HS), (1,T,HS)

  /// Scores to about 636 * 2^exponent; exponent even.
  LargeScores(Sandbox& box, Dtype dtype, int exponent)
      : one_takes_all(std::ldexp(1 / std::sqrt(8), exponent) > 200),
        qkv(box.random(dtype, {1, kTokens, 3 * kHS})),
        dout(box.random(dtype, {1, kTokens, kHS})) {
    for (int64_t i = 0; i < qkv.size(); ++i)
      if (i % (3 * kHS) < 2 * kHS)
        set(qkv, i, std::ldexp(std::round(15 * at(qkv, i)), exponent / 2));
  }
};

/// `got` is near `want`: exp, log and sums may round, and so may storing.
void expect_agreement(const Attended& got, const Attended& want, const LargeScores& x) {
  constexpr int64_t HS = LargeScores::kHS;
  const bool narrow = is_narrow(x.qkv.dtype);
  const double unit = narrow ? 0x1p-7 : 1e-4;
  double largest = 0;  // of queries and keys
  for (int64_t i = 0; i < x.qkv.size(); ++i) largest = std::max(largest, std::abs(at(x.qkv, i)));
  for (int64_t i = 0; i < want.lse.size(); ++i)
    ASSERT_NEAR(at(got.lse, i), at(want.lse, i), 0x1p-22 * std::abs(at(want.lse, i)) + 1e-5) << i;
  for (int64_t i = 0; i < want.out.size(); ++i)
    ASSERT_NEAR(at(got.out, i), at(want.out, i), unit) << i;
  for (int64_t i = 0; i < want.dqkv.size(); ++i) {
    // A key is weighed by up to T queries, dP - D is at most 2 HS.
    const int64_t part = i % (3 * HS) / HS;
    const double weights = part == 0 ? 1 : LargeScores::kTokens;
    ASSERT_NEAR(at(got.dqkv, i), at(want.dqkv, i),
                unit * weights * (part == 2 ? 1 : 2 * HS * largest))
        << i;
    // Then its score has no gradient, whatever rounds.
    if (!narrow && x.one_takes_all && at(want.dqkv, i) == 0) {
      ASSERT_EQ(at(got.dqkv, i), 0) << i;
    }
  }
}

TEST_F(AttentionPieces, TablesAgreeOnLargeScores) {
  for (int exponent = 0; exponent <= LargeScores::kLargest; exponent += 2)
    for (const Dtype dtype : kReals) {
      const LargeScores x(host, dtype, exponent);
      SCOPED_TRACE(exponent);
      expect_agreement(attend(ctx, 1, x.qkv, x.dout), ref_attends(1, x.qkv, x.dout), x);
      dut().clear();
    }
}

}  // namespace
}  // namespace ladder::test
