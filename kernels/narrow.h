// The narrow floating-point formats: what their bits mean, and rounding to nearest even.
//
//            sign exponent mantissa   bias   largest   smallest normal   smallest
//   BF16      1      8        7       127    3.4e38      2^-126           2^-133
//   F16       1      5       10        15    65504       2^-14            2^-24
//   E4M3      1      4        3         7    448         2^-6             2^-9
//   E5M2      1      5        2        15    57344       2^-14            2^-16
//
// E4M3 (arXiv 2209.05433) has no infinity: its top exponent holds numbers, and only the code of all
// ones is NaN. The other three formats are small copies of IEEE 754.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/tensor.h"

namespace ladder {

/// How the bits of a format are divided.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;

  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  /// The first code that is no number: +infinity, or NaN in a format without infinity.
  constexpr uint32_t first_special() const {
    const uint32_t all = (1u << (exponent_bits + mantissa_bits)) - 1;
    return has_infinity ? all - ((1u << mantissa_bits) - 1) : all;
  }
  constexpr uint32_t nan() const {
    return has_infinity ? first_special() | (1u << (mantissa_bits - 1)) : first_special();
  }
};

inline constexpr Format kBf16{.exponent_bits = 8, .mantissa_bits = 7, .has_infinity = true};
inline constexpr Format kF16{.exponent_bits = 5, .mantissa_bits = 10, .has_infinity = true};
inline constexpr Format kE4M3{.exponent_bits = 4, .mantissa_bits = 3, .has_infinity = false};
inline constexpr Format kE5M2{.exponent_bits = 5, .mantissa_bits = 2, .has_infinity = true};

/// What a value beyond the largest number becomes.
enum class Overflow : uint8_t {
  ToInfinity,  ///< NaN in a format without infinity: as IEEE 754 rounds
  Saturate,    ///< the largest number, as training in FP8 needs (arXiv 2209.05433, 3.1)
};

/// The value of a code, exactly.
constexpr float widen(const Format& f, uint32_t code) {
  const uint32_t magnitude = code & ((1u << (f.bits() - 1)) - 1);
  const uint32_t sign = code >> (f.bits() - 1) << 31;
  if (magnitude >= f.first_special()) {
    const bool infinity = f.has_infinity && magnitude == f.first_special();
    return std::bit_cast<float>(sign | (infinity ? 0x7F800000u : 0x7FC00000u));
  }
  // Puts the same digits where a float has them. The exponent is then too small by the difference
  // of the biases, for subnormal numbers, too. Two exact products repair that.
  const float digits = std::bit_cast<float>(sign | magnitude << (23 - f.mantissa_bits));
  const int missing = 127 - f.bias();
  const float half = std::bit_cast<float>(static_cast<uint32_t>(127 + missing / 2) << 23);
  return digits * half * half;
}

/// The code nearest to x, ties to the even code. NaN stays NaN, without its payload.
constexpr uint32_t narrow(const Format& f, float x, Overflow overflow) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 31 << (f.bits() - 1);
  const uint32_t a = bits & 0x7FFFFFFFu;
  if (a > 0x7F800000u) return sign | f.nan();
  const int drop = 23 - f.mantissa_bits;
  const uint32_t missing = static_cast<uint32_t>(127 - f.bias());
  uint32_t code = 0;
  if (missing > 0 && a < (missing + 1) << 23) {
    // Below the smallest normal number, codes are multiples of the smallest number. Adding a power
    // of two whose last digit has that weight makes the adder round; the low bits of the sum are
    // the code.
    const uint32_t magic = (missing + 1 + static_cast<uint32_t>(drop)) << 23;
    const float sum = std::bit_cast<float>(a) + std::bit_cast<float>(magic);
    code = std::bit_cast<uint32_t>(sum) - magic;
  } else {
    // Half of the last digit that stays; one less where that digit is even.
    const uint32_t round = (1u << (drop - 1)) - 1 + (a >> drop & 1);
    code = (a + round - (missing << 23)) >> drop;
  }
  if (code >= f.first_special())
    code = overflow == Overflow::Saturate ? f.first_special() - 1 : f.first_special();
  return sign | code;
}

/// The larger of two magnitudes; NaN if either is.
inline float larger(float a, float b) { return std::isnan(b) || b > a ? b : a; }

/// A number of BF16, as its bits.
struct Bf16 {
  uint16_t bits;
  static constexpr Format kFormat = kBf16;
};
/// A number of FP16, as its bits.
struct F16 {
  uint16_t bits;
  static constexpr Format kFormat = kF16;
};
/// A number of FP8 with 4 bits of exponent.
struct E4m3 {
  uint8_t bits;
  static constexpr Format kFormat = kE4M3;
};
/// A number of FP8 with 5 bits of exponent.
struct E5m2 {
  uint8_t bits;
  static constexpr Format kFormat = kE5M2;
};

/// The value of an element of any floating-point type.
constexpr float value_of(float x) { return x; }
template <class Narrow>
constexpr float value_of(Narrow x) {
  // A copy: device code may not refer to a static member, which lies in the host's memory.
  constexpr Format kFormat = Narrow::kFormat;
  return widen(kFormat, x.bits);
}

template <>
inline constexpr Dtype dtype_of<Bf16> = Dtype::BF16;
template <>
inline constexpr Dtype dtype_of<F16> = Dtype::F16;
template <>
inline constexpr Dtype dtype_of<E4m3> = Dtype::E4M3;
template <>
inline constexpr Dtype dtype_of<E5m2> = Dtype::E5M2;

constexpr bool is_fp8(Dtype dtype) { return dtype == Dtype::E4M3 || dtype == Dtype::E5M2; }
constexpr bool is_narrow(Dtype dtype) {
  return dtype == Dtype::BF16 || dtype == Dtype::F16 || is_fp8(dtype);
}
/// The dtype of sums, statistics and parameter gradients where activations have `dtype`.
constexpr Dtype wide(Dtype dtype) { return is_narrow(dtype) ? Dtype::F32 : dtype; }

/// The format of a narrow dtype. @throws CheckError for any other dtype
constexpr const Format& format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::BF16: return kBf16;
    case Dtype::F16: return kF16;
    case Dtype::E4M3: return kE4M3;
    case Dtype::E5M2: return kE5M2;
    default: throw CheckError("not a narrow dtype");
  }
}

/// FP8 saturates; 16-bit formats overflow as IEEE 754 does.
constexpr Overflow overflow_of(Dtype dtype) {
  return is_fp8(dtype) ? Overflow::Saturate : Overflow::ToInfinity;
}

}  // namespace ladder
