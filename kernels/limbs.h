// Squared norms as integers, so that they can be added in any order.
//
// No tree of floating-point sums fits both the cuts of ZeRO and those of tensor parallelism. So a
// leaf of 16 squares is summed in double, and becomes an integer multiple of 2^-80. This integer is
// spread over limbs of 32 bits, each of which is held in an int64: limb j weighs 2^(32 j - 80).
// Limbs of different threads, calls and ranks are added as integers. A rank may add up to 2^31
// leaves. Then it calls carry_limbs, so that no sum over ranks overflows. Devices use the constexpr
// functions of this file, too, so every table has the same bits.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/kernels.h"

namespace ladder {

/// The last limb counts the leaves that were not finite. The others hold the number.
constexpr int64_t kNonfiniteLimb = kLimbs - 1;
constexpr int kLimbBits = 32;
constexpr int kFractionBits = 80;
/// Elements of a leaf of a squared norm.
constexpr int64_t kNormLeaf = 16;

/// A leaf as limbs: limb[first + i] grows by part[i].
struct LeafLimbs {
  int first;
  std::array<uint32_t, 3> part;  ///< a double has 53 bits, so it touches at most three limbs
};

/// The limbs of `leaf`, a sum of squares, which is not negative and below 2^272. The bits of a leaf
/// below 2^-80 are dropped.
constexpr LeafLimbs limbs_of(double leaf) {
  constexpr int kMantissaBits = 52;
  constexpr int kBias = 1023;
  const auto bits = std::bit_cast<uint64_t>(leaf);
  const int exponent = static_cast<int>(bits >> kMantissaBits);
  // leaf = mantissa 2^(exponent - 1075) = mantissa 2^(place - 80); a subnormal is far below 2^-80.
  uint64_t mantissa = (bits & ((uint64_t{1} << kMantissaBits) - 1)) | uint64_t{1} << kMantissaBits;
  int place = exponent - kBias - kMantissaBits + kFractionBits;
  if (place < 0) {
    mantissa = place <= -kMantissaBits - 1 ? 0 : mantissa >> -place;
    place = 0;
  }
  const int shift = place % kLimbBits;
  const uint64_t low = mantissa << shift;
  const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  return {.first = place / kLimbBits,
          .part = {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> kLimbBits),
                   static_cast<uint32_t>(high)}};
}

/// A sum of sixteen squares of floats is below 2^260. Only a sum of doubles can be too large for
/// the limbs. It counts as infinite.
constexpr double kTooLargeForLimbs = 0x1p272;
constexpr bool fits_limbs(double leaf) { return leaf < kTooLargeForLimbs; }

/// Adds `leaf` to limbs (kLimbs). The leaf is a sum of squares: at least 0, or not finite.
constexpr void add_to_limbs(int64_t* limbs, double leaf) {
  if (!fits_limbs(leaf)) {
    ++limbs[kNonfiniteLimb];
    return;
  }
  const LeafLimbs pieces = limbs_of(leaf);
  for (int i = 0; i < 3 && pieces.first + i < kNonfiniteLimb; ++i)
    limbs[pieces.first + i] += pieces.part[static_cast<size_t>(i)];
}

/// Leaves the number as it is, and every limb but the last of the number below 2^32.
constexpr void carry_limbs(int64_t* limbs) {
  constexpr int64_t kLast = kNonfiniteLimb - 1;
  uint64_t carry = 0;
  for (int64_t j = 0; j < kLast; ++j) {
    const uint64_t sum = static_cast<uint64_t>(limbs[j]) + carry;
    limbs[j] = static_cast<int64_t>(sum & 0xFFFFFFFFu);
    carry = sum >> kLimbBits;
  }
  limbs[kLast] += static_cast<int64_t>(carry);
}

/// 2^exponent, which must be a normal double.
constexpr double power_of_two(int64_t exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

/// The weight of limb j.
constexpr double limb_weight(int64_t j) { return power_of_two(kLimbBits * j - kFractionBits); }

/// The number that limbs hold, to within one ulp; NaN if a leaf was not finite.
constexpr double limbs_value(const int64_t* limbs) {
  if (limbs[kNonfiniteLimb] != 0) return std::numeric_limits<double>::quiet_NaN();
  // Carry first: one integer can be spread over the limbs in several ways, and all must give the
  // same bits.
  uint64_t digit[kLimbs] = {};
  uint64_t carry = 0;
  for (int64_t j = 0; j < kNonfiniteLimb; ++j) {
    const uint64_t sum = static_cast<uint64_t>(limbs[j]) + carry;
    digit[j] = sum & 0xFFFFFFFFu;
    carry = sum >> kLimbBits;
  }
  double value = static_cast<double>(carry) * limb_weight(kNonfiniteLimb);
  for (int64_t j = kNonfiniteLimb - 1; j >= 0; --j)
    value += static_cast<double>(digit[j]) * limb_weight(j);
  return value;
}

}  // namespace ladder
