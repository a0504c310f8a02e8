#include "common/random.h"

#include <cmath>
#include <numbers>

#include <Random123/philox.h>

#include "kernels/math.h"

namespace ladder {
namespace {

constexpr uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

}  // namespace

std::array<uint64_t, 2> Random::bits(uint64_t i, uint64_t j) const {
  const r123::Philox4x32::ctr_type counter = {{low(i), high(i), low(j), high(j)}};
  const r123::Philox4x32::key_type key = {{low(key_), high(key_)}};
  const auto r = r123::Philox4x32()(counter, key);
  return {r[0] | uint64_t{r[1]} << 32, r[2] | uint64_t{r[3]} << 32};
}

std::array<double, 2> Random::normal_pair(uint64_t i) const {
  const auto [a, b] = bits(i);
  const double radius = std::sqrt(-2 * math::log(1 - unit(a)));  // 1 - unit is never 0
  const double angle = 2 * std::numbers::pi * unit(b);
  return {radius * math::cos(angle), radius * math::sin(angle)};
}

}  // namespace ladder
