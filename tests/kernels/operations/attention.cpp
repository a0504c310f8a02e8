// Attention against `ref` in double, on the same numbers: on the host, and on a device with plain
// multiply-adds (F32, and heads of odd sizes) and with tensor cores (BF16, F16).
//
// The bounds follow the roundings. Forward rounds scores, weights P and sums; backward rounds P
// and dS once more. What a device rounds to 16 bits before a tensor core multiplies it counts
// with half a unit of that format for each weight, the rest with a few units of FP32. So a bound
// is a sum over the very pairs whose errors it adds up, and tells a lost pair from a rounding.
#include <cmath>

#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

/// Twice a rounding: tensor cores cut off where others round.
constexpr double kCut = 2 * kRound;

/// NH heads of queries, NKV of keys and values.
struct Heads {
  int64_t B, T, NH, NKV, HS;

  Shape qkv() const { return {B, T, (NH + 2 * NKV) * HS}; }
  Shape out() const { return {B, T, NH * HS}; }
};

/// An error of x: relative |x| + absolute.
struct Roundings {
  double relative, absolute;
};

class Attention : public VsRef {
 protected:
  /// What ref makes of the same; its backward is given what the device's forward computed.
  Attended want(const Attended& got, const Tensor& qkv, const Tensor& dout) {
    const Attended r{exact.empty(dout.shape), exact.empty(got.lse.shape), exact.empty(qkv.shape)};
    ref.attention_forward(exact.ctx(), r.out, r.lse, wide(qkv));
    ref.attention_backward(exact.ctx(), r.dqkv, wide(dout), wide(qkv), wide(got.out),
                           wide(got.lse));
    return r;
  }

  /// Checks each element of the results; says which is wrong.
  ::testing::AssertionResult right(const Attended& got, const Attended& want, const Tensor& qkv,
                                   const Tensor& dout);
};

double largest(const Tensor& x) {
  double most = 0;
  for (int64_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(at(x, i)));
  return most;
}

/// Query head h of one sequence: where its rows begin in qkv, in out and in lse.
struct Head {
  Heads s;
  int64_t b, h;

  /// part: 0 its queries, 1 the keys of its group, 2 the values
  int64_t qkv(int64_t t, int64_t part) const {
    const int64_t r = s.NH / s.NKV, group = (b * s.T + t) * s.NKV + h / r;
    return (group * (r + 2) + (part == 0 ? h % r : r + part - 1)) * s.HS;
  }
  int64_t out(int64_t t) const { return ((b * s.T + t) * s.NH + h) * s.HS; }
  int64_t lse(int64_t t) const { return (b * s.NH + h) * s.T + t; }
};

/// Adds the errors that roundings of a head's weights and slopes may cause in out and dqkv. All
/// F64. weight: of P and of dS, relative to each; product: of dP - D
void add_errors(const Head& head, const Attended& errors, const Attended& got, const Tensor& qkv,
                const Tensor& dout, Roundings weight, double product) {
  const auto [B, T, NH, NKV, HS] = head.s;
  const double scale = 1 / std::sqrt(static_cast<double>(HS));
  const double *x = qkv.data<double>(), *y = got.out.data<double>(), *dy = dout.data<double>();
  const double* lse = got.lse.data<double>();
  double *out = errors.out.data<double>(), *dx = errors.dqkv.data<double>();
  for (int64_t t = 0; t < T; ++t)
    for (int64_t u = 0; u <= t; ++u) {
      const int64_t q = head.qkv(t, 0), k = head.qkv(u, 1), v = head.qkv(u, 2), o = head.out(t);
      double S = 0, dP = 0;
      for (int64_t d = 0; d < HS; ++d) {
        S += x[q + d] * x[k + d] * scale;
        dP += dy[o + d] * (x[v + d] - y[o + d]);
      }
      const double P = std::exp(S - lse[head.lse(t)]);
      const double of_P = P * weight.relative + weight.absolute;
      const double of_dS =
          (std::abs(P * dP) * weight.relative + P * product + weight.absolute) * scale;
      for (int64_t d = 0; d < HS; ++d) {
        out[o + d] += of_P * std::abs(x[v + d]);
        dx[q + d] += of_dS * std::abs(x[k + d]);
        dx[k + d] += of_dS * std::abs(x[q + d]);
        dx[v + d] += of_P * std::abs(dy[o + d]);
      }
    }
}

/// Half a unit of the dtype: relative, and for numbers too small for that. The relative one of F32
/// is counted apart, and what is below its normal numbers may be lost.
Roundings storing(Dtype dtype) {
  if (dtype == Dtype::F32) return {0, 0x1p-126};
  const Format& format = format_of(dtype);
  return {std::ldexp(1, -format.mantissa_bits - 1), widen(format, 1) / 2};
}

::testing::AssertionResult near(const char* what, const Tensor& got, const Tensor& want,
                                const Tensor& errors) {
  const Roundings stored = storing(got.dtype);
  for (int64_t i = 0; i < got.size(); ++i) {
    const double allowed = at(errors, i) * (1 + stored.relative) +
                           std::abs(at(want, i)) * stored.relative + stored.absolute;
    if (!(std::abs(at(got, i) - at(want, i)) <= allowed))
      return ::testing::AssertionFailure()
             << what << " " << to_string(got.shape) << "[" << i << "] is " << at(got, i) << ", not "
             << at(want, i) << "; allowed " << allowed;
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult Attention::right(const Attended& got, const Attended& want,
                                            const Tensor& qkv, const Tensor& dout) {
  const int64_t NH = got.lse.dim(1), HS = dout.dim(2) / NH;
  const Heads s{qkv.dim(0), qkv.dim(1), NH, (qkv.dim(2) / HS - NH) / 2, HS};
  const auto terms = static_cast<double>(s.HS);
  const auto keys = static_cast<double>(s.T * (NH / s.NKV));  // or queries of a key
  const double size = largest(qkv);
  const double score = std::sqrt(terms) * size * size;  // at most
  // A score: its sum, and its place in an exponent, twice; then exp2, and sums over keys.
  const double S = kCut * score * (terms + 8);
  const double P = 2 * S + kCut * (keys + 16);
  const double product = kCut * (terms + 8) * terms * size * largest(dout);
  const Roundings cell = storing(ctx.device ? qkv.dtype : Dtype::F32);
  // A power of two below the normal numbers is 0 where tensor cores multiply (exp2_quick).
  const Roundings weight{P + cell.relative, std::max(cell.absolute, 0x1p-126)};
  const Attended errors{exact.zeros(Dtype::F64, want.out.shape),
                        exact.filled(want.lse.shape, S + kCut * (keys + 16)),
                        exact.zeros(Dtype::F64, want.dqkv.shape)};
  const Attended wide_got{wide(got.out), wide(got.lse), wide(got.dqkv)};
  const Tensor wide_qkv = wide(qkv), wide_dout = wide(dout);
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t h = 0; h < NH; ++h)
      add_errors({s, b, h}, errors, wide_got, wide_qkv, wide_dout, weight, product);
  for (int64_t i = 0; i < want.lse.size(); ++i)
    set(errors.lse, i, at(errors.lse, i) + 2 * kCut * std::abs(at(want.lse, i)));
  if (auto result = near("lse", got.lse, want.lse, errors.lse); !result) return result;
  if (auto result = near("out", got.out, want.out, errors.out); !result) return result;
  return near("dqkv", got.dqkv, want.dqkv, errors.dqkv);
}

TEST_F(Attention, AsRefInEveryDtype) {
  // T is around the sizes of strips, tiles, blocks (16 to 128) and chunks of keys. Heads are in
  // groups or alone. HS is a size that an engine has, or between two of them.
  for (const Heads& s :
       {Heads{1, 1, 1, 1, 16}, {2, 15, 3, 3, 16},  {1, 16, 2, 2, 32},   {1, 17, 1, 1, 64},
        {2, 64, 2, 2, 64},     {1, 65, 1, 1, 16},  {1, 100, 1, 1, 128}, {1, 128, 1, 1, 32},
        {1, 130, 1, 1, 128},   {1, 130, 2, 2, 64}, {2, 130, 3, 3, 16},  {1, 300, 1, 1, 16},
        {1, 270, 1, 1, 64},    {2, 33, 2, 2, 5},   {1, 70, 1, 1, 20},   {1, 66, 1, 1, 48},
        {1, 40, 1, 1, 100},    {1, 1, 1, 1, 1},    {2, 1, 1, 1, 3},     {3, 5, 3, 3, 7},
        {2, 64, 4, 4, 32},     {1, 95, 2, 2, 16},  {1, 96, 1, 1, 33},   {2, 97, 3, 3, 5},
        {1, 250, 1, 1, 128},   {1, 700, 1, 1, 20}, {2, 70, 4, 2, 16},   {2, 70, 3, 1, 5},
        {2, 70, 6, 2, 32},     {2, 70, 3, 1, 64},  {1, 77, 4, 2, 128},  {1, 133, 2, 1, 80},
        {1, 95, 2, 1, 96}}) {
    if (s.T > 300 && ctx.device) continue;  // that takes a stand-in long
    for (const Dtype dtype : kReals) {
      const Tensor qkv = host.random(dtype, s.qkv()), dout = host.random(dtype, s.out());
      Attended before;
      with_each_engine(dtype, s.HS, [&](bool same) {
        const Attended got = attend(ctx, s.NH, qkv, dout);
        EXPECT_TRUE(right(got, want(got, qkv, dout), qkv, dout))
            << size_of(dtype) << " bytes, B " << s.B << " T " << s.T << " NH " << s.NH << " of "
            << s.NKV << " HS " << s.HS;
        for (const auto result : {&Attended::out, &Attended::lse, &Attended::dqkv})
          EXPECT_TRUE(!same || same_bits(got.*result, before.*result))
              << "T " << s.T << " HS " << s.HS;
        before = got;
      });
      dut().clear();
    }
  }
}

/// Scores of a row rise to 80, or fall from 80, over several blocks of keys. If the maximum were
/// not subtracted, exp(80) would be far larger than all other terms; and it must be updated on the
/// way.
TEST_F(Attention, ScoresThatRiseOrFallFromBlockToBlock) {
  const int64_t T = 200, HS = 16;
  for (const double last : {80.0, -80.0})
    for (const Dtype dtype : kReals) {
      const Tensor qkv = host.random(dtype, {1, T, 3 * HS});
      for (int64_t i = 0; i < qkv.size(); ++i) {
        const double place = static_cast<double>(i / (3 * HS)) / T;
        const int64_t part = i % (3 * HS) / HS;
        if (part == 0) set(qkv, i, 4);
        if (part == 1) set(qkv, i, last / 16 * (2 * place - 1));
      }
      const Tensor dout = host.random(dtype, {1, T, HS});
      const Attended got = attend(ctx, 1, qkv, dout);
      const Attended exactly = want(got, qkv, dout);
      EXPECT_GT(std::abs(at(exactly.lse, 0)), 70);
      EXPECT_TRUE(right(got, exactly, qkv, dout)) << size_of(dtype) << " bytes, to " << last;
    }
}

/// Negative controls: the bounds refuse the wrong head, one pair more or less, and an element that
/// was not written.
TEST_F(Attention, WrongResultsAreSeen) {
  const int64_t T = 100, NH = 2, HS = 32;
  for (const Dtype dtype : kReals) {
    const Tensor qkv = host.random(dtype, {1, T, 3 * NH * HS});
    const Tensor dout = host.random(dtype, {1, T, NH * HS});
    const Attended got = attend(ctx, NH, qkv, dout);
    ASSERT_TRUE(right(got, want(got, qkv, dout), qkv, dout));

    const Tensor swapped = host.empty(dtype, qkv.shape);
    for (int64_t i = 0; i < qkv.size(); ++i) {
      const int64_t head = i / (3 * HS) % NH;
      set(swapped, i, at(qkv, i + (head == 0 ? 1 : -1) * 3 * HS));
    }
    EXPECT_FALSE(right(got, want(got, swapped, dout), qkv, dout));

    // The last token no longer sees token 50, which weighs about 1 in 100.
    const Head head{{1, T, NH, NH, HS}, 0, 1};
    const Attended blind = want(got, qkv, dout);
    double S = 0;
    for (int64_t d = 0; d < HS; ++d)
      S += at(qkv, head.qkv(T - 1, 0) + d) * at(qkv, head.qkv(50, 1) + d);
    const double P = std::exp(S / std::sqrt(static_cast<double>(HS)) - at(got.lse, 2 * T - 1));
    for (int64_t d = 0; d < HS; ++d)
      set(blind.out, head.out(T - 1) + d,
          at(blind.out, head.out(T - 1) + d) - P * at(qkv, head.qkv(50, 2) + d));
    EXPECT_FALSE(right(got, blind, qkv, dout));

    for (const Tensor& x : {got.out, got.lse, got.dqkv}) {
      const double kept = at(x, x.size() - 1);
      const Attended exactly = want(got, qkv, dout);
      set(x, x.size() - 1, NAN);
      EXPECT_FALSE(right(got, exactly, qkv, dout));
      set(x, x.size() - 1, kept);
    }
  }
}

/// Bits depend neither on the order in which threads and blocks run (another one in each launch)
/// nor on what lies beside a sequence or a head.
TEST_F(Attention, AnyOrderOfThreadsAndAnyBatchGiveTheSameBits) {
  const int64_t T = 140, NH = 2, HS = 16;
  for (const Dtype dtype : kReals) {
    const Tensor qkv = host.random(dtype, {2, T, 3 * NH * HS});
    const Tensor dout = host.random(dtype, {2, T, NH * HS});
    const Attended once = attend(ctx, NH, qkv, dout), again = attend(ctx, NH, qkv, dout);
    const Attended second = attend(ctx, NH, qkv.slice(1, 1), dout.slice(1, 1));
    for (const auto result : {&Attended::out, &Attended::lse, &Attended::dqkv}) {
      EXPECT_TRUE(same_bits(again.*result, once.*result));
      EXPECT_TRUE(same_bits(second.*result, (once.*result).slice(1, 1)));
    }
  }
}

TEST_F(Attention, ATokenDoesNotFeelWhatFollows) {
  const int64_t T = ctx.device ? 200 : 300, HS = 20;
  for (const Dtype dtype : kReals) {
    const Tensor qkv = host.random(dtype, {1, T, 3 * HS}), dout = host.random(dtype, {1, T, HS});
    const Attended whole = attend(ctx, 1, qkv, dout);
    for (const int64_t n :
         {int64_t{1}, int64_t{5}, int64_t{64}, int64_t{75}, int64_t{76}, int64_t{192}, T - 1}) {
      const Tensor other = host.copy(qkv);
      for (int64_t i = n * 3 * HS; i < other.size(); ++i) set(other, i, -at(qkv, i) / 2);
      const Attended cut = attend(ctx, 1, other, dout);
      const auto first = [n](const Tensor& x) { return x.view({x.dim(1), x.dim(2)}).first(n); };
      EXPECT_TRUE(same_bits(first(cut.out), first(whole.out))) << n;
      EXPECT_TRUE(same_bits(cut.lse.view({T}).first(n), whole.lse.view({T}).first(n))) << n;
      int64_t differ_q = 0, differ_k = 0;
      for (int64_t i = 0; i < n * 3 * HS; ++i) {
        const bool differs = at(cut.dqkv, i) != at(whole.dqkv, i);
        (i / HS % 3 == 0 ? differ_q : differ_k) += differs;
      }
      EXPECT_EQ(differ_q, 0) << n;
      EXPECT_GT(differ_k, 0) << n << ": negative control, keys do feel the queries that follow";
    }
  }
}

TEST_F(Attention, ANaNReachesTheQueriesThatSeeIt) {
  const int64_t C = 16, T = 40;
  for (const Dtype dtype : kReals)
    for (const int64_t place : {0, 20, 39}) {
      const Tensor qkv = host.random(dtype, {1, T, 3 * C}), y = out(dtype, {1, T, C});
      set(qkv, place * 3 * C + C, NAN);  // a key
      k.attention_forward(ctx, y, out(Dtype::F32, {1, 1, T}), up(qkv));
      const Tensor got = down(y);
      for (int64_t t = 0; t < T; ++t) EXPECT_EQ(std::isnan(at(got, t * C)), t >= place) << t;
    }
}

}  // namespace
}  // namespace ladder::test
