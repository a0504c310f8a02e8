// Attention against `ref` in double, on the same numbers: on the host, and on a device with plain
// multiply-adds (F32, and heads of odd sizes) and with tensor cores (BF16, F16).
//
// The bounds follow the roundings. Forward rounds scores, weights P and sums; backward rounds P
// and dS once more. What a device rounds to 16 bits before a tensor core multiplies it counts
// with half a unit of that format for each weight, the rest with a few units of FP32. So a bound
// is a sum over the very pairs whose errors it adds up, and tells a lost pair from a rounding.
#include <cmath>

#include "tests/kernels/testing.h"
#include "tests/kernels/under_test.h"

namespace ladder::test {
namespace {

/// Half a unit in the last place of a float near 1; tensor cores cut off where others round.
constexpr double kRound = 0x1p-23;
constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::BF16, Dtype::F16};

struct Heads {
  int64_t B, T, NH, HS;
};

/// out (B,T,NH*HS); lse (B,NH,T); dqkv (B,T,3*NH*HS)
struct Results {
  Tensor out, lse, dqkv;
};

/// An error of x: relative |x| + absolute.
struct Roundings {
  double relative, absolute;
};

class Attention : public DeviceTest {
 protected:
  const Kernels& k = *dut().ctx.kernels;
  Sandbox host{ref_kernels()};
  Sandbox exact{ref_kernels(), Dtype::F64};
  const Kernels& ref = exact.kernels();

  Tensor wide(const Tensor& x) {
    const Tensor y = exact.empty(x.shape);
    for (int64_t i = 0; i < x.size(); ++i) set(y, i, at(x, i));
    return y;
  }

  Results run(const Tensor& qkv, const Tensor& dout, int64_t NH) {
    const int64_t B = qkv.dim(0), T = qkv.dim(1);
    const Tensor x = dut().upload(qkv), dy = dut().upload(dout);
    const Tensor out = dut().empty(qkv.dtype, dout.shape);
    const Tensor lse = dut().empty(Dtype::F32, {B, NH, T});
    const Tensor dx = dut().empty(qkv.dtype, qkv.shape);
    k.attention_forward(dut().ctx, out, lse, x);
    k.attention_backward(dut().ctx, dx, dy, x, out, lse);
    return {dut().download(out), dut().download(lse), dut().download(dx)};
  }

  /// What ref makes of the same; its backward is given what the device's forward computed.
  Results want(const Results& got, const Tensor& qkv, const Tensor& dout) {
    const Results r{exact.empty(dout.shape), exact.empty(got.lse.shape), exact.empty(qkv.shape)};
    ref.attention_forward(exact.ctx(), r.out, r.lse, wide(qkv));
    ref.attention_backward(exact.ctx(), r.dqkv, wide(dout), wide(qkv), wide(got.out),
                           wide(got.lse));
    return r;
  }

  /// Checks each element of the results; says which is wrong.
  ::testing::AssertionResult right(const Results& got, const Results& want, const Tensor& qkv,
                                   const Tensor& dout);
};

double largest(const Tensor& x) {
  double most = 0;
  for (int64_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(at(x, i)));
  return most;
}

/// One head of one sequence: its rows in qkv, and in out.
struct Head {
  Heads s;
  int64_t b, h;

  int64_t qkv(int64_t t, int64_t part) const {
    return ((b * s.T + t) * s.NH + h) * 3 * s.HS + part * s.HS;
  }
  int64_t out(int64_t t) const { return ((b * s.T + t) * s.NH + h) * s.HS; }
  int64_t lse(int64_t t) const { return (b * s.NH + h) * s.T + t; }
};

/// Adds the errors that roundings of a head's weights and slopes may cause in out and dqkv. All
/// F64. weight: of P and of dS, relative to each; product: of dP - D
void add_errors(const Head& head, const Results& errors, const Results& got, const Tensor& qkv,
                const Tensor& dout, Roundings weight, double product) {
  const auto [B, T, NH, HS] = head.s;
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

::testing::AssertionResult Attention::right(const Results& got, const Results& want,
                                            const Tensor& qkv, const Tensor& dout) {
  const int64_t NH = got.lse.dim(1);
  const Heads s{qkv.dim(0), qkv.dim(1), NH, qkv.dim(2) / NH / 3};
  const auto terms = static_cast<double>(s.HS), keys = static_cast<double>(s.T);
  const double size = largest(qkv);
  const double score = std::sqrt(terms) * size * size;  // at most
  // A score: its sum, and its place in an exponent, twice; then exp2, and sums over keys.
  const double S = kRound * score * (terms + 8);
  const double P = 2 * S + kRound * (keys + 16);
  const double product = kRound * (terms + 8) * terms * size * largest(dout);
  const Roundings cell = storing(dut().ctx.device ? qkv.dtype : Dtype::F32);
  // A power of two below the normal numbers is 0 where tensor cores multiply (exp2_quick).
  const Roundings weight{P + cell.relative, std::max(cell.absolute, 0x1p-126)};
  const Results errors{exact.zeros(Dtype::F64, want.out.shape),
                       exact.filled(want.lse.shape, S + kRound * (keys + 16)),
                       exact.zeros(Dtype::F64, want.dqkv.shape)};
  const Results wide_got{wide(got.out), wide(got.lse), wide(got.dqkv)};
  const Tensor wide_qkv = wide(qkv), wide_dout = wide(dout);
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t h = 0; h < NH; ++h)
      add_errors({s, b, h}, errors, wide_got, wide_qkv, wide_dout, weight, product);
  for (int64_t i = 0; i < want.lse.size(); ++i)
    set(errors.lse, i, at(errors.lse, i) + 2 * kRound * std::abs(at(want.lse, i)));
  if (auto result = near("lse", got.lse, want.lse, errors.lse); !result) return result;
  if (auto result = near("out", got.out, want.out, errors.out); !result) return result;
  return near("dqkv", got.dqkv, want.dqkv, errors.dqkv);
}

TEST_F(Attention, AsRefInEveryDtype) {
  // Around strips, tiles, blocks of 16 to 128 and chunks of keys; one to three heads; HS between
  // engines' sizes and beside tiles.
  for (const auto& [B, T, NH, HS] :
       {Heads{1, 1, 1, 16},    Heads{2, 15, 3, 16},  Heads{1, 16, 2, 32},   Heads{1, 17, 1, 64},
        Heads{2, 64, 2, 64},   Heads{1, 65, 1, 16},  Heads{1, 100, 1, 128}, Heads{1, 128, 1, 32},
        Heads{1, 130, 1, 128}, Heads{1, 130, 2, 64}, Heads{2, 130, 3, 16},  Heads{1, 300, 1, 16},
        Heads{1, 270, 1, 64},  Heads{2, 33, 2, 5},   Heads{1, 70, 1, 20},   Heads{1, 66, 1, 48},
        Heads{1, 40, 1, 100},  Heads{1, 1, 1, 1},    Heads{2, 1, 1, 3},     Heads{3, 5, 3, 7},
        Heads{2, 64, 4, 32},   Heads{1, 95, 2, 16},  Heads{1, 96, 1, 33},   Heads{2, 97, 3, 5},
        Heads{1, 250, 1, 128}, Heads{1, 700, 1, 20}}) {
    if (T > 300 && dut().ctx.device) continue;  // that takes a stand-in long
    for (const Dtype dtype : kDtypes) {
      const Tensor qkv = host.random(dtype, {B, T, 3 * NH * HS});
      const Tensor dout = host.random(dtype, {B, T, NH * HS});
      const Results got = run(qkv, dout, NH);
      EXPECT_TRUE(right(got, want(got, qkv, dout), qkv, dout))
          << size_of(dtype) << " bytes, B " << B << " T " << T << " NH " << NH << " HS " << HS;
      dut().clear();
    }
  }
}

/// Scores of a row climb to 80 or fall from there, in steps that no single block of keys holds:
/// without the largest, exp(80) would drown the sums, and without moving it, the rest would.
TEST_F(Attention, ScoresThatRiseOrFallFromBlockToBlock) {
  const int64_t T = 200, HS = 16;
  for (const double last : {80.0, -80.0})
    for (const Dtype dtype : kDtypes) {
      const Tensor qkv = host.random(dtype, {1, T, 3 * HS});
      for (int64_t i = 0; i < qkv.size(); ++i) {
        const double place = static_cast<double>(i / (3 * HS)) / T;
        const int64_t part = i % (3 * HS) / HS;
        if (part == 0) set(qkv, i, 4);
        if (part == 1) set(qkv, i, last / 16 * (2 * place - 1));
      }
      const Tensor dout = host.random(dtype, {1, T, HS});
      const Results got = run(qkv, dout, 1);
      const Results exactly = want(got, qkv, dout);
      EXPECT_GT(std::abs(at(exactly.lse, 0)), 70);
      EXPECT_TRUE(right(got, exactly, qkv, dout)) << size_of(dtype) << " bytes, to " << last;
    }
}

/// Negative controls: the bounds are too narrow for the wrong head, for one pair more or less, and
/// for an element that was not written.
TEST_F(Attention, WrongResultsAreSeen) {
  const int64_t T = 100, NH = 2, HS = 32;
  for (const Dtype dtype : kDtypes) {
    const Tensor qkv = host.random(dtype, {1, T, 3 * NH * HS});
    const Tensor dout = host.random(dtype, {1, T, NH * HS});
    const Results got = run(qkv, dout, NH);
    ASSERT_TRUE(right(got, want(got, qkv, dout), qkv, dout));

    const Tensor swapped = host.empty(dtype, qkv.shape);
    for (int64_t i = 0; i < qkv.size(); ++i) {
      const int64_t head = i / (3 * HS) % NH;
      set(swapped, i, at(qkv, i + (head == 0 ? 1 : -1) * 3 * HS));
    }
    EXPECT_FALSE(right(got, want(got, swapped, dout), qkv, dout));

    // The last token no longer sees token 50, which weighs about 1 in 100.
    const Head head{{1, T, NH, HS}, 0, 1};
    const Results blind = want(got, qkv, dout);
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
      const Results exactly = want(got, qkv, dout);
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
  for (const Dtype dtype : kDtypes) {
    const Tensor qkv = host.random(dtype, {2, T, 3 * NH * HS});
    const Tensor dout = host.random(dtype, {2, T, NH * HS});
    const Results once = run(qkv, dout, NH), again = run(qkv, dout, NH);
    const Results second = run(qkv.slice(1, 1), dout.slice(1, 1), NH);
    for (const auto result : {&Results::out, &Results::lse, &Results::dqkv}) {
      EXPECT_TRUE(same_bits(again.*result, once.*result));
      EXPECT_TRUE(same_bits(second.*result, (once.*result).slice(1, 1)));
    }
  }
}

/// On the host as long as a sequence is one chunk of keys.
TEST_F(Attention, ATokenDoesNotFeelHowManyFollow) {
  const int64_t T = dut().ctx.device ? 200 : 127, HS = 32;
  for (const Dtype dtype : kDtypes) {
    const Tensor qkv = host.random(dtype, {1, T, 3 * HS});
    const Tensor dout = host.random(dtype, {1, T, HS});
    const Results whole = run(qkv, dout, 1);
    const auto first = [](const Tensor& x, int64_t n) {
      return x.view({x.dim(1), x.dim(2)}).first(n).view({1, n, x.dim(2)});
    };
    for (const int64_t n : {int64_t{1}, int64_t{31}, int64_t{64}, int64_t{96}, T - 1}) {
      const Results part = run(first(qkv, n), first(dout, n), 1);
      EXPECT_TRUE(same_bits(part.out, first(whole.out, n))) << n;
      EXPECT_TRUE(same_bits(part.lse.view({n}), whole.lse.view({T}).first(n))) << n;
      int64_t differ_q = 0, differ_k = 0;
      for (int64_t i = 0; i < part.dqkv.size(); ++i) {
        const bool differs = at(part.dqkv, i) != at(whole.dqkv, i);
        (i / HS % 3 == 0 ? differ_q : differ_k) += differs;
      }
      EXPECT_EQ(differ_q, 0) << n;
      EXPECT_GT(differ_k, 0) << n << ": negative control, keys do feel the queries that follow";
    }
  }
}

}  // namespace
}  // namespace ladder::test
