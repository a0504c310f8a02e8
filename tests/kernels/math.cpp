// The elementary functions: their errors, against the C library in a longer format, and their bits,
// which no compiler and no processor may change.
#include "kernels/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace ladder::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// How far `got` is from `exact`, in units of the last place that a double near `exact` has.
double error_in_ulp(double got, long double exact) {
  const long double ulp = std::ldexp(1.0L, std::ilogb(exact) - 52);
  return static_cast<double>(std::abs(got - exact) / ulp);
}

/// f against `exact` at 20,000 places of [from, to].
template <class F, class Exact>
void expect_within(double ulp, double from, double to, const F& f, const Exact& exact) {
  constexpr int kPlaces = 20'000;
  for (int i = 0; i <= kPlaces; ++i) {
    const double x = from + (to - from) * i / kPlaces;
    const long double right = exact(static_cast<long double>(x));
    if (right == 0) continue;
    ASSERT_LE(error_in_ulp(f(x), right), ulp) << x;
  }
}

TEST(Math, IsRightToAFewUlp) {
  using L = long double;
  expect_within(
      0.9, -708, 709, [](double x) { return math::exp(x); }, [](L x) { return std::exp(x); });
  expect_within(
      1.0, 0.001, 3, [](double x) { return math::log(x); }, [](L x) { return std::log(x); });
  expect_within(
      1.0, 1, 1e300, [](double x) { return math::log(x); }, [](L x) { return std::log(x); });
  expect_within(
      2.5, -20, 20, [](double x) { return math::tanh(x); }, [](L x) { return std::tanh(x); });
  for (const double far : {10.0, 0x1p20}) {
    expect_within(0.8, -far, far, math::sin, [](L x) { return std::sin(x); });
    expect_within(0.8, -far, far, math::cos, [](L x) { return std::cos(x); });
  }
  expect_within(
      15, 1, 1e7, [](double t) { return math::pow(t, -0.8); },
      [](L t) { return std::pow(t, static_cast<L>(-0.8)); });
}

// A float is the nearest one, unless the exact value lies almost between two floats.
TEST(Math, FloatsAreRoundedOnce) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 99'991) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnan(x)) continue;
    ASSERT_FLOAT_EQ(math::exp(x), static_cast<float>(std::exp(double{x}))) << x;
    ASSERT_FLOAT_EQ(math::tanh(x), static_cast<float>(std::tanh(double{x}))) << x;
    if (x <= 0) continue;
    ASSERT_FLOAT_EQ(math::log(x), static_cast<float>(std::log(double{x}))) << x;
  }
}

TEST(Math, AtTheEdges) {
  EXPECT_EQ(math::exp(0.0), 1);
  EXPECT_EQ(math::exp(710.0), kInf);
  EXPECT_EQ(math::exp(kInf), kInf);
  EXPECT_EQ(math::exp(-746.0), 0);
  EXPECT_EQ(math::exp(-kInf), 0);
  EXPECT_EQ(math::exp(-745.0), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(math::exp(89.0f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(math::log(1.0), 0);
  EXPECT_EQ(math::log(0.0), -kInf);
  EXPECT_EQ(math::log(kInf), kInf);
  EXPECT_TRUE(std::isnan(math::log(-1.0)));
  EXPECT_EQ(math::tanh(kInf), 1);
  EXPECT_EQ(math::tanh(-kInf), -1);
  EXPECT_EQ(math::tanh(0.0), 0);
  EXPECT_TRUE(std::signbit(math::tanh(-0.0)));
  EXPECT_EQ(math::sin(0.0), 0);
  EXPECT_EQ(math::cos(0.0), 1);
  EXPECT_TRUE(std::isnan(math::sin(kInf)));
  EXPECT_TRUE(std::isnan(math::cos(2e6)));
  EXPECT_EQ(math::pow(0.0, 3.0), 0);
  EXPECT_EQ(math::pow(0.9, 0.0), 1);
  for (const double x : {math::exp(kNan), math::log(kNan), math::tanh(kNan), math::sin(kNan),
                         math::cos(kNan), math::pow(kNan, 2), math::pow(2, kNan)})
    EXPECT_TRUE(std::isnan(x));
}

/// FNV-1a over the bits of f(x) at 100,000 places of (from, to].
template <class F>
uint64_t hash_of(double from, double to, const F& f) {
  constexpr int kPlaces = 100'000;
  uint64_t hash = 0xCBF29CE484222325u;
  for (int i = 1; i <= kPlaces; ++i)
    hash = (hash ^ std::bit_cast<uint64_t>(double{f(from + (to - from) * i / kPlaces)})) *
           0x100000001B3u;
  return hash;
}

TEST(Math, HasTheseBitsEverywhere) {
  EXPECT_EQ(hash_of(-750, 710, [](double x) { return math::exp(x); }), 0xE207BFB625BBC491u);
  EXPECT_EQ(hash_of(0, 3, [](double x) { return math::log(x); }), 0xFA935C36CAE987DCu);
  EXPECT_EQ(hash_of(-20, 20, [](double x) { return math::tanh(x); }), 0x1CD2D1CAAE277BB0u);
  EXPECT_EQ(hash_of(-100, 100, math::sin), 0xCF2C07EE0C1D86C2u);
  EXPECT_EQ(hash_of(-100, 100, math::cos), 0x24E8E6FB94803687u);
  EXPECT_EQ(hash_of(0, 1e5, [](double t) { return math::pow(0.999, t); }), 0x0DE8A663F41CAE4Bu);
}

}  // namespace
}  // namespace ladder::test
