// Squared norms as exact integers, so that they can be added in any order.
//
// No tree of floating-point sums fits the cuts of ZeRO and of tensor parallelism at once. So a
// leaf of 16 squares, summed in double, becomes an integer multiple of 2^-80, spread over limbs
// of 32 bits that sit in int64: limb j weighs 2^(32 j - 80). Limbs of different threads, calls
// and ranks are added as integers; 2^31 leaves fit before one overflows.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/kernels.h"

namespace ladder {

/// The last limb counts leaves that were not finite; the others are the number.
constexpr int64_t kNonfiniteLimb = kLimbs - 1;
constexpr int kLimbBits = 32;
constexpr int kFractionBits = 80;
/// Elements of a leaf of a squared norm.
constexpr int64_t kNormLeaf = 16;

/// Adds `leaf`, a sum of squares (>= 0 or not finite), to limbs[kLimbs].
/// Bits below 2^-80 are dropped, leaf by leaf. Sixteen squares of floats stay below 2^260; what
/// is too large for the limbs, which only doubles can be, counts as infinite.
inline void add_to_limbs(int64_t* limbs, double leaf) {
  if (!(leaf < 0x1p272)) {
    ++limbs[kNonfiniteLimb];
    return;
  }
  int exponent = 0;
  std::frexp(leaf, &exponent);  // leaf < 2^exponent
  const int top = exponent + kFractionBits;
  if (leaf == 0 || top <= 0) return;
  // A double has 53 bits: they touch at most three limbs.
  const int first = (top - 1) / kLimbBits;
  double rest = std::ldexp(leaf, kFractionBits - kLimbBits * first);
  for (int j = first; j >= 0 && j > first - 3; --j) {
    const auto whole = static_cast<int64_t>(rest);
    limbs[j] += whole;
    rest = std::ldexp(rest - static_cast<double>(whole), kLimbBits);
  }
}

/// The number that limbs hold, within a unit of the last place; NaN if a leaf was not finite.
inline double limbs_value(const int64_t* limbs) {
  if (limbs[kNonfiniteLimb] != 0) return std::nan("");
  // Carry first: the same integer spread differently over the limbs must give the same bits.
  uint64_t digit[kLimbs];
  uint64_t carry = 0;
  for (int64_t j = 0; j < kNonfiniteLimb; ++j) {
    const uint64_t sum = static_cast<uint64_t>(limbs[j]) + carry;
    digit[j] = sum & 0xFFFFFFFFu;
    carry = sum >> kLimbBits;
  }
  double value = std::ldexp(static_cast<double>(carry),
                            static_cast<int>(kLimbBits * kNonfiniteLimb) - kFractionBits);
  for (int64_t j = kNonfiniteLimb - 1; j >= 0; --j)
    value +=
        std::ldexp(static_cast<double>(digit[j]), static_cast<int>(kLimbBits * j) - kFractionBits);
  return value;
}

}  // namespace ladder
