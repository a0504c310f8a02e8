// Floats at which rounding to a narrow format can go wrong.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/narrow.h"

namespace ladder::test {

/// The value that code `first_special` would have if it were a number: one step past the largest.
inline double past_largest(const Format& f) {
  const double largest = widen(f, f.first_special() - 1);
  return 2 * largest - double{widen(f, f.first_special() - 2)};
}

/// Of both signs: every value of the format, every midpoint between two neighbors (and between
/// the largest and the step after it), the floats just below and above, infinity, NaN with several
/// payloads, and 100,000 random patterns of bits.
inline std::vector<float> hard_floats(const Format& f) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> cases = {kInfinity, std::numeric_limits<float>::max(),
                              std::bit_cast<float>(0x7F800001U), std::bit_cast<float>(0x7FFFFFFFU)};
  const auto around = [&](double exact) {
    const auto x = static_cast<float>(exact);
    for (const float y : {std::nextafter(x, 0.0F), x, std::nextafter(x, kInfinity)})
      cases.push_back(y);
  };
  for (uint32_t code = 0; code < f.first_special(); ++code) {
    const double here = widen(f, code);
    const double next = code + 1 < f.first_special() ? double{widen(f, code + 1)} : past_largest(f);
    around(here);
    around((here + next) / 2);
  }
  around(past_largest(f));
  for (size_t i = cases.size(); i-- > 0;) cases.push_back(-cases[i]);
  std::mt19937 engine(20240608);
  for (int i = 0; i < 100'000; ++i)
    cases.push_back(std::bit_cast<float>(static_cast<uint32_t>(engine())));
  return cases;
}

/// Equal codes; one NaN is as good as another.
inline bool same_code(const Format& f, uint32_t a, uint32_t b) {
  return a == b || (std::isnan(widen(f, a)) && std::isnan(widen(f, b)));
}

}  // namespace ladder::test
