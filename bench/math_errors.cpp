// The largest errors of kernels/math.h, and of the exponential function of `cpu`'s vectors, in
// units of the last place (ulp). Floats: all of them, or one of --every; doubles: --samples
// random ones of each range. The C library is the judge, in the next longer format.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "common/random.h"
#include "kernels/cpu/simd.h"
#include "kernels/math.h"

namespace ladder::bench {
namespace {

/// |got - exact| in units of the last place that a Real near `exact` has; huge if only one of them
/// is a number.
template <class Real, class Wide>
double error_in_ulp(Real got, Wide exact) {
  constexpr Wide kLargest = std::numeric_limits<Real>::max();
  if (std::isnan(exact) || std::abs(exact) > kLargest)
    return std::isnan(got) == std::isnan(exact) && !std::isfinite(got) ? 0 : 1e30;
  if (!std::isfinite(got)) return 1e30;
  const int exponent =
      std::max(exact == 0 ? -9999 : std::ilogb(exact), std::numeric_limits<Real>::min_exponent - 1);
  return static_cast<double>(std::abs(static_cast<Wide>(got) - exact) /
                             std::ldexp(Wide(1), exponent + 1 - std::numeric_limits<Real>::digits));
}

struct Worst {
  double error = 0, at = 0;
  void see(double e, double x) {
    if (!(e <= error)) *this = {.error = e, .at = x};
  }
  void print(const char* name) const {
    fmt::print("{:24}{:12.7f} ulp at {:.17g}\n", name, error, at);
  }
};

/// f and exact take a float; exact answers in double. Only where from <= x <= to.
template <class F, class Exact>
void floats(const char* name, int64_t every, float from, float to, const F& f, const Exact& exact) {
  Worst worst;
  for (int64_t bits = 0; bits < int64_t{1} << 32; bits += every) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (x >= from && x <= to) worst.see(error_in_ulp(f(x), exact(double{x})), x);
  }
  worst.print(name);
}

/// The same for `samples` doubles of [from, to].
template <class F, class Exact>
void doubles(const char* name, int64_t samples, double from, double to, const F& f,
             const Exact& exact) {
  const Random random(1, name);
  Worst worst;
  for (int64_t i = 0; i < samples; ++i) {
    const double x = from + (to - from) * random.uniform(static_cast<uint64_t>(i));
    worst.see(error_in_ulp(f(x), exact(static_cast<long double>(x))), x);
  }
  worst.print(name);
}

float vector_exp(float x) {
  std::array<float, kLanes> lanes;
  store(exp(broadcast(x)), lanes.data());
  return lanes[0];
}

void all(int64_t every, int64_t samples) {
  using math::exp, math::log, math::tanh;
  constexpr float kInf = std::numeric_limits<float>::infinity();
#define LADDER_F(f) [](auto x) { return f(x); }
  floats("float exp", every, -kInf, kInf, LADDER_F(exp), LADDER_F(std::exp));
  floats("float log", every, -kInf, kInf, LADDER_F(log), LADDER_F(std::log));
  floats("float tanh", every, -kInf, kInf, LADDER_F(tanh), LADDER_F(std::tanh));
  floats("cpu's exp", every, -87.33654F, 88.02F, vector_exp, LADDER_F(std::exp));
  doubles("exp, around 0", samples, -1, 1, LADDER_F(exp), LADDER_F(std::exp));
  doubles("exp", samples, -708, 709, LADDER_F(exp), LADDER_F(std::exp));
  doubles("exp, subnormal", samples, -745, -708.4, LADDER_F(exp), LADDER_F(std::exp));
  doubles("log, 0 to 1", samples, 0, 1, LADDER_F(log), LADDER_F(std::log));
  doubles("log, around 1", samples, 0.7, 1.5, LADDER_F(log), LADDER_F(std::log));
  doubles("log, large", samples, 1, 1e300, LADDER_F(log), LADDER_F(std::log));
  doubles("tanh, around 0", samples, -0.01, 0.01, LADDER_F(tanh), LADDER_F(std::tanh));
  doubles("tanh", samples, -20, 20, LADDER_F(tanh), LADDER_F(std::tanh));
  doubles("sin", samples, -10, 10, LADDER_F(math::sin), LADDER_F(std::sin));
  doubles("sin, far", samples, -0x1p20, 0x1p20, LADDER_F(math::sin), LADDER_F(std::sin));
  doubles("cos", samples, -10, 10, LADDER_F(math::cos), LADDER_F(std::cos));
  doubles("cos, far", samples, -0x1p20, 0x1p20, LADDER_F(math::cos), LADDER_F(std::cos));
  doubles(
      "t^-0.8", samples, 1, 1e7, [](double t) { return math::pow(t, -0.8); },
      [](long double t) { return std::pow(t, static_cast<long double>(-0.8)); });
  doubles(
      "0.999^t", samples, 1, 1e5, [](double t) { return math::pow(0.999, t); },
      [](long double t) { return std::pow(static_cast<long double>(0.999), t); });
#undef LADDER_F
}

}  // namespace
}  // namespace ladder::bench

int main(int argc, char** argv) {
  CLI::App app("Errors of the elementary functions");
  int64_t every = 1, samples = 100'000'000;
  app.add_option("--every", every, "take one float of so many")->check(CLI::PositiveNumber);
  app.add_option("--samples", samples, "doubles of each range")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  ladder::bench::all(every, samples);
}
