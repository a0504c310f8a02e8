// Attention of `cpu` against `ref` in double, at sizes with several blocks and in every dtype; and
// the bits that it promises.
#include "kernels/narrow.h"
#include "tests/kernels/cpu_vs_ref.h"
#include "tests/kernels/large_scores.h"

namespace ladder::test {
namespace {

struct Heads {
  int64_t B, T, NH, HS;
};
constexpr Dtype kActivations[] = {Dtype::F32, Dtype::BF16, Dtype::F16};

class Attention : public CpuVsRef {
 protected:
  /// NaN until written.
  Tensor unwritten(Dtype dtype, Shape shape) {
    const Tensor x = fast.zeros(dtype, shape);
    std::memset(x.ptr, 0xFF, static_cast<size_t>(x.bytes()));
    return x;
  }
  Tensor rounded(const Tensor& x, Dtype dtype) {
    const Tensor y = unwritten(dtype, x.shape);
    ref.cast(fast.ctx(), y, x);
    return y;
  }

  struct Results {
    Tensor out, lse, dqkv;
  };
  Results run(const Tensor& qkv, const Tensor& dout, int64_t NH) {
    const int64_t B = qkv.dim(0), T = qkv.dim(1);
    const Results r{unwritten(qkv.dtype, dout.shape), unwritten(Dtype::F32, {B, NH, T}),
                    unwritten(qkv.dtype, qkv.shape)};
    cpu.attention_forward(fast.ctx(), r.out, r.lse, qkv);
    cpu.attention_backward(fast.ctx(), r.dqkv, dout, qkv, r.out, r.lse);
    return r;
  }

  /// sum_t P[t,u]: how much the queries of a key see of it. (B,NH,T); in double.
  Tensor seen(const Tensor& qkv, const Tensor& lse) {
    const int64_t B = lse.dim(0), NH = lse.dim(1), T = lse.dim(2), HS = qkv.dim(2) / 3 / NH;
    const Tensor sums = exact.filled(lse.shape, 0);
    for (int64_t bh = 0; bh < B * NH; ++bh) {
      const double* q =
          qkv.data<double>() + (bh / NH * T * 3 * NH + bh % NH * 3) * HS;  // of token 0
      const int64_t row = 3 * NH * HS;
      for (int64_t t = 0; t < T; ++t)
        for (int64_t u = 0; u <= t; ++u) {
          double score = 0;
          for (int64_t d = 0; d < HS; ++d) score += q[t * row + d] * q[u * row + HS + d];
          score /= std::sqrt(static_cast<double>(HS));
          sums.data<double>()[bh * T + u] += std::exp(score - at(lse, bh * T + t));
        }
    }
    return sums;
  }

  /// What storing a value near x in this dtype may change, if it is known up to `error`.
  static double storing(Dtype dtype, double x, double error) {
    if (dtype == Dtype::F32) return 0;  // counted among the roundings
    const Format& format = format_of(dtype);
    return std::ldexp(std::abs(x) + error, -format.mantissa_bits - 1) + widen(format, 1);
  }
};

TEST_F(Attention, AsRefInEveryDtype) {
  // One token; tiles; a block but one, a block, and one more; HS beside tiles; many blocks.
  for (const auto& [B, T, NH, HS] :
       {Heads{1, 1, 1, 1}, Heads{2, 1, 1, 3}, Heads{3, 5, 3, 7}, Heads{2, 17, 3, 16},
        Heads{2, 64, 4, 32}, Heads{1, 95, 2, 16}, Heads{1, 96, 1, 33}, Heads{2, 97, 3, 5},
        Heads{1, 250, 1, 128}, Heads{1, 1500, 1, 20}})
    for (const Dtype dtype : kActivations) {
      const int64_t C = NH * HS;
      const Tensor qkv = rounded(fast.random({B, T, 3 * C}), dtype);
      const Tensor dout = rounded(fast.random({B, T, C}), dtype);
      const Results got = run(qkv, dout, NH);
      const Tensor out = exact.empty(dout.shape), lse = exact.empty({B, NH, T});
      const Tensor dqkv = exact.empty(qkv.shape);
      ref.attention_forward(exact.ctx(), out, lse, wide(qkv));
      ref.attention_backward(exact.ctx(), dqkv, wide(dout), wide(qkv), wide(got.out),
                             wide(got.lse));
      // All operands are at most 1, so a score is at most sqrt(HS); its error is absolute, and
      // relative for its exponential. Probabilities sum to 1. And one rounding to the dtype.
      const double score = std::sqrt(static_cast<double>(HS));
      const double unit = kRound * (score * static_cast<double>(HS + 8) + lane_roundings(T) + 8);
      const double mixed = 2 * unit + kRound * static_cast<double>(T);
      // |dP - D| <= 2 HS, with an error of HS units or less. dk and dv sum over the queries of a
      // key, each as far as it sees the key.
      const Tensor weight = seen(wide(qkv), lse);
      const double slope =
          static_cast<double>(HS) * (6 * unit + 2 * kRound * static_cast<double>(T)) / score;
      expect_near("lse", got.lse, lse,
                  [&](int64_t i) { return unit + 4 * kRound * std::abs(at(lse, i)); });
      expect_near("out", got.out, out,
                  [&](int64_t i) { return mixed + storing(dtype, at(out, i), mixed); });
      const auto bound = [&, T = T, NH = NH, HS = HS](int64_t i) {
        const int64_t part = i % (3 * HS) / HS, head = i / (3 * HS) % NH, token = i / (3 * C);
        const double sees = at(weight, (token / T * NH + head) * T + token % T);
        const double error = (part == 0 ? 1 : sees) * (part == 2 ? mixed : slope);
        return error + storing(dtype, at(dqkv, i), error);
      };
      expect_near("dqkv", got.dqkv, dqkv, bound);
      // The bounds bite: zeros would not pass. But the gradients of a first token's query and key
      // are 0, and those of late keys small.
      int64_t zeros_pass = 0;
      for (int64_t i = 0; i < dqkv.size(); ++i) zeros_pass += std::abs(at(dqkv, i)) <= bound(i);
      EXPECT_LE(zeros_pass, T == 1 ? dqkv.size() : dqkv.size() / 4) << T << " " << HS;
    }
}

TEST_F(Attention, ANaNReachesTheQueriesThatSeeIt) {
  const int64_t C = 16, T = 40;
  for (const int64_t place : {0, 20, 39}) {
    const Tensor qkv = fast.random({1, T, 3 * C}), out = fast.empty({1, T, C});
    set(qkv, place * 3 * C + C, NAN);  // a key
    cpu.attention_forward(fast.ctx(), out, fast.empty({1, 1, T}), qkv);
    for (int64_t t = 0; t < T; ++t) EXPECT_EQ(std::isnan(at(out, t * C)), t >= place) << t;
  }
}

/// Every block of keys moves the maximum, far beyond what an exponential can hold; or none does.
TEST_F(Attention, ScoresThatRiseOrFallFromBlockToBlock) {
  const int64_t T = 400, HS = 4;
  for (const double last : {300.0, -300.0}) {
    const Tensor qkv = fast.random({1, T, 3 * HS});
    for (int64_t i = 0; i < qkv.size(); ++i) {
      const double place = static_cast<double>(i / (3 * HS)) / T;
      const int64_t part = i % (3 * HS) / HS;
      if (part == 0) set(qkv, i, 10);
      if (part == 1) set(qkv, i, last / 20 * place);
    }
    const Tensor out = fast.empty({1, T, HS}), lse = fast.empty({1, 1, T});
    const Tensor y = exact.empty(out.shape), l = exact.empty(lse.shape);
    cpu.attention_forward(fast.ctx(), out, lse, qkv);
    ref.attention_forward(exact.ctx(), y, l, wide(qkv));
    const double unit = kRound * (300 * (HS + 8) + lane_roundings(T) + 8);
    expect_near("lse", lse, l, [&](int64_t) { return unit; });
    expect_near("out", out, y, [&](int64_t) { return 2 * unit + kRound * T; });
  }
}

/// Query heads that share a key and a value head, over one chunk of keys and over many.
TEST_F(Attention, GroupsOfHeadsAsRef) {
  struct Groups {
    int64_t B, T, NH, NKV, HS;
  };
  for (const auto& [B, T, NH, NKV, HS] :
       {Groups{2, 70, 4, 2, 16}, Groups{1, 300, 6, 2, 5}, Groups{1, 600, 3, 1, 8}}) {
    const Tensor qkv = fast.random({B, T, (NH + 2 * NKV) * HS}, -2, 2);
    const Tensor dout = fast.random({B, T, NH * HS});
    const Results got = run(qkv, dout, NH);
    const Tensor out = exact.empty(dout.shape), lse = exact.empty({B, NH, T});
    const Tensor dqkv = exact.empty(qkv.shape);
    ref.attention_forward(exact.ctx(), out, lse, wide(qkv));
    ref.attention_backward(exact.ctx(), dqkv, wide(dout), wide(qkv), out, lse);
    EXPECT_LT(relative_error(got.out, out), 1e-6) << T;
    EXPECT_LT(relative_error(got.lse, lse), 1e-6) << T;
    EXPECT_LT(relative_error(got.dqkv, dqkv), 2e-6) << T;
  }
}

TEST_F(Attention, TablesAgreeOnLargeScores) {
  Sandbox single(ref_kernels());
  for (int exponent = 0; exponent <= LargeScores::kLargest; exponent += 2)
    for (const Dtype dtype : kActivations) {
      const LargeScores x(fast, dtype, exponent);
      const LargeScoresResults want{unwritten(dtype, x.dout.shape),
                                    unwritten(Dtype::F32, {1, 1, LargeScores::kTokens}),
                                    unwritten(dtype, x.qkv.shape)};
      ref.attention_forward(single.ctx(), want.out, want.lse, x.qkv);
      ref.attention_backward(single.ctx(), want.dqkv, x.dout, x.qkv, want.out, want.lse);
      const Results got = run(x.qkv, x.dout, 1);
      SCOPED_TRACE(exponent);
      expect_agreement({got.out, got.lse, got.dqkv}, want, x);
    }
}

TEST_F(Attention, AnyThreads) {
  const int64_t B = 2, T = 130, NH = 3, HS = 20;
  for (const Dtype dtype : kActivations) {
    const Tensor qkv = rounded(fast.random({B, T, 3 * NH * HS}), dtype);
    const Tensor dout = rounded(fast.random({B, T, NH * HS}), dtype);
    fast.set_threads(1);
    const Results one = run(qkv, dout, NH);
    for (const int threads : {2, 3, 7}) {
      fast.set_threads(threads);
      const Results more = run(qkv, dout, NH);
      EXPECT_TRUE(same_bits(more.out, one.out)) << threads;
      EXPECT_TRUE(same_bits(more.lse, one.lse)) << threads;
      EXPECT_TRUE(same_bits(more.dqkv, one.dqkv)) << threads;
    }
  }
}

/// q, k or v of some tokens of one head.
Tensor part_of(Sandbox& box, const Tensor& qkv, int64_t tokens, int64_t part) {
  const int64_t HS = qkv.dim(2) / 3;
  const Tensor x = box.empty({tokens, HS});
  for (int64_t i = 0; i < x.size(); ++i) set(x, i, at(qkv, (i / HS * 3 + part) * HS + i % HS));
  return x;
}

/// The first n tokens of a tensor (1,T,C).
Tensor first(const Tensor& x, int64_t n) {
  return x.view({x.dim(1), x.dim(2)}).first(n).view({1, n, x.dim(2)});
}

TEST_F(Attention, ATokenDoesNotFeelWhatFollows) {
  const int64_t T = 300, HS = 20;
  const Tensor qkv = fast.random({1, T, 3 * HS}), dout = fast.random({1, T, HS});
  const Results whole = run(qkv, dout, 1);
  for (const int64_t n : {1, 5, 74, 75, 76, 192, 200, 299}) {
    const Tensor other = fast.copy(qkv);
    for (int64_t i = n * 3 * HS; i < other.size(); ++i) set(other, i, -at(qkv, i) / 2);
    const Results part = run(other, dout, 1);
    EXPECT_TRUE(same_bits(first(part.out, n), first(whole.out, n))) << n;
    EXPECT_TRUE(same_bits(part.lse.view({T}).first(n), whole.lse.view({T}).first(n))) << n;
    EXPECT_TRUE(same_bits(part_of(fast, part.dqkv, n, 0), part_of(fast, whole.dqkv, n, 0))) << n;
    // Negative control: keys do feel the queries that follow.
    EXPECT_FALSE(same_bits(part_of(fast, part.dqkv, n, 1), part_of(fast, whole.dqkv, n, 1))) << n;
  }
}

/// A sequence of few tokens is one chunk, so its bits do not depend on how long it goes on.
TEST_F(Attention, ATokenOfAShortSequenceDoesNotFeelHowManyFollow) {
  const int64_t T = 127, HS = 20;
  const Tensor qkv = fast.random({1, T, 3 * HS}), dout = fast.random({1, T, HS});
  const Results whole = run(qkv, dout, 1);
  for (const int64_t n : {1, 5, 95, 96, 97, 126}) {
    const Results part = run(first(qkv, n), first(dout, n), 1);
    EXPECT_TRUE(same_bits(part.out, first(whole.out, n))) << n;
    EXPECT_TRUE(same_bits(part.lse.view({n}), whole.lse.view({T}).first(n))) << n;
    EXPECT_TRUE(same_bits(part_of(fast, part.dqkv, n, 0), part_of(fast, whole.dqkv, n, 0))) << n;
  }
}

TEST_F(Attention, AHeadOf4096TokensFitsTheScratchAndALongerOneIsRefused) {
  const int64_t HS = 64;
  for (const int64_t T : {4096, 3 * 4096}) {
    const Tensor qkv = fast.random({1, T, 3 * HS}), dout = fast.random({1, T, HS});
    // The same value everywhere: its mean is that, and no weight matters.
    for (int64_t i = 0; i < qkv.size(); ++i)
      if (i % (3 * HS) >= 2 * HS) set(qkv, i, 0.75);
    if (T > 4096) {
      EXPECT_THROW(run(qkv, dout, 1), OutOfMemory);
      EXPECT_THROW(cpu.attention_backward(fast.ctx(), qkv, dout, qkv, dout,
                                          unwritten(Dtype::F32, {1, 1, T})),
                   OutOfMemory);
      continue;
    }
    const Results got = run(qkv, dout, 1);
    double dv = 0, sum = 0, terms = 0;
    for (int64_t i = 0; i < dout.size(); ++i) {
      ASSERT_NEAR(at(got.out, i), 0.75, 0.75 * kRound * (8 + T)) << i;
      dv += at(got.dqkv, (i / HS * 3 + 2) * HS + i % HS);
      sum += at(dout, i);
      terms += std::abs(at(dout, i));
    }
    // Weights of a query sum to 1: dv sums to what dout does.
    EXPECT_NEAR(dv, sum, terms * kRound * (8 + T));
  }
}

}  // namespace
}  // namespace ladder::test
