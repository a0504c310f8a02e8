// Each function first brings x near 0, where a short power series suffices, and then undoes that.
// floor and fabs of the C library are exact, so they are the same everywhere. A double is cut into
// 2^k and a rest, and joined again, by its bits: the low 52 are the fraction, and the bits above
// them are the exponent, k + 1023. frexp and ldexp would do the same, but take as long as all the
// rest.
#include "kernels/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace ladder::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// ln 2 and pi / 2 as sums of parts. All parts but the last have few digits, so their products with
/// the whole numbers of this file are exact.
constexpr double kLn2[] = {0x1.62e42fee00000p-1, 0x1.a39ef35793c76p-33};
constexpr double kHalfPi[] = {0x1.921fb54400000p+0, 0x1.0b4611a600000p-34, 0x1.3198a2e037073p-69};

double nearest_whole(double x) { return std::floor(x + 0.5); }

/// c[0] + c[1] x + c[2] x^2 + ...
double polynomial(std::span<const double> c, double x) {
  double sum = c.back();
  for (size_t i = c.size() - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

/// 2^k, -1022 <= k <= 1023
double power_of_2(int64_t k) { return std::bit_cast<double>((k + 1023) << 52); }

/// e^r - 1 for |r| <= ln 2 / 2, where r = high + low: r + r^2 (1/2! + r/3! + r^2/4! + ...)
double exp_minus_1_near_0(double high, double low) {
  static constexpr double kSeries[] = {
      1. / 2,     1. / 6,      1. / 24,       1. / 120,       1. / 720,       1. / 5040,
      1. / 40320, 1. / 362880, 1. / 3628800., 1. / 39916800., 1. / 479001600, 1. / 6227020800};
  const double r = high + low;
  return high + (low + r * r * polynomial(kSeries, r));
}

/// x = k ln 2 + high + low, where |high + low| <= ln 2 / 2 apart from rounding
struct CutByLn2 {
  double k, high, low;
  explicit CutByLn2(double x)
      : k(nearest_whole(x * (1 / (kLn2[0] + kLn2[1])))), high(x - k * kLn2[0]), low(-k * kLn2[1]) {}
};

/// e^x - 1 = 2^k (e^r - 1) + (2^k - 1), 0 <= x < 50
double exp_minus_1(double x) {
  const CutByLn2 cut(x);
  const double power = power_of_2(static_cast<int64_t>(cut.k));
  return power * exp_minus_1_near_0(cut.high, cut.low) + (power - 1);
}

/// sin r and cos r for |r| <= pi / 4, where r = high + low and low is less than an ulp of high.
double sin_near_0(double high, double low) {
  static constexpr double kSeries[] = {
      -1. / 6,         1. / 120,        -1. / 5040,          1. / 362880,
      -1. / 39916800., 1. / 6227020800, -1. / 1307674368000, 1. / 355687428096000};
  const double square = high * high;
  // sin(high + low) = sin high + low cos high
  return high + (high * square * polynomial(kSeries, square) + low * (1 - square / 2));
}
double cos_near_0(double high, double low) {
  static constexpr double kSeries[] = {
      1. / 24,        -1. / 720,         1. / 40320,         -1. / 3628800,
      1. / 479001600, -1. / 87178291200, 1. / 20922789888000};
  const double square = high * high, half = square / 2, first = 1 - half;
  // Gives back what 1 - half lost by rounding.
  return first +
         (((1 - first) - half) + (square * square * polynomial(kSeries, square) - high * low));
}

/// sin(x + turns pi / 2)
double sin_turned(double x, int turns) {
  if (!(std::fabs(x) <= 0x1p20)) return kNan;
  const double k = nearest_whole(x * (1 / kHalfPi[0]));
  const double rough = x - k * kHalfPi[0], middle = k * kHalfPi[1];
  const double fine = rough - middle;
  const double rest = ((rough - fine) - middle) - k * kHalfPi[2];
  const double high = fine + rest, low = (fine - high) + rest;
  const int quarter = (static_cast<int>(k) + turns) & 3;
  const double size = quarter % 2 == 0 ? sin_near_0(high, low) : cos_near_0(high, low);
  return quarter < 2 ? size : -size;
}

struct Parts {
  double m, k;
};

/// x = 2^k m with m from sqrt(1/2) to sqrt(2), for a positive finite x.
Parts mantissa_and_exponent(double x) {
  const bool tiny = x < std::numeric_limits<double>::min();
  const auto bits = std::bit_cast<int64_t>(tiny ? x * 0x1p54 : x);
  // The exponent, counted from sqrt(1/2).
  const int64_t k = (bits - std::bit_cast<int64_t>(0x1.6a09e667f3bcdp-1)) >> 52;
  return {std::bit_cast<double>(bits - k * (int64_t{1} << 52)),
          static_cast<double>(tiny ? k - 54 : k)};
}

}  // namespace

double exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 710) return kInfinity;
  if (x < -746) return 0;
  const CutByLn2 cut(x);
  // Two factors, because 2^k itself may be no double. Only the second product may round.
  const auto k = static_cast<int64_t>(cut.k), half = k / 2;
  return (1 + exp_minus_1_near_0(cut.high, cut.low)) * power_of_2(half) * power_of_2(k - half);
}

// x = 2^k m with m from sqrt(1/2) to sqrt(2). With f = m - 1 and s = f / (2 + f),
// log m = 2 (s + s^3/3 + s^5/5 + ...) = f - s (f - z), z = 2 (s^2/3 + s^4/5 + ...).
double log(double x) {
  static constexpr double kSeries[] = {2. / 3,  2. / 5,  2. / 7,  2. / 9,  2. / 11,
                                       2. / 13, 2. / 15, 2. / 17, 2. / 19, 2. / 21};
  if (std::isnan(x) || x < 0) return kNan;
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return x;
  const auto [m, k] = mantissa_and_exponent(x);
  const double f = m - 1, s = f / (2 + f), square = s * s;
  const double z = square * polynomial(kSeries, square);
  return k * kLn2[0] + (f - (s * (f - z) - k * kLn2[1]));
}

// With e = e^(2 |x|) - 1: tanh |x| = e / (e + 2).
double tanh(double x) {
  if (std::isnan(x)) return x;
  const double e = exp_minus_1(2 * std::fmin(std::fabs(x), 22));
  return std::copysign(e / (e + 2), x);
}

double sin(double x) { return sin_turned(x, 0); }
double cos(double x) { return sin_turned(x, 1); }

double pow(double x, double y) { return exp(y * log(x)); }

}  // namespace ladder::math
