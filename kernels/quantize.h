// 8-bit codes for optimizer states: dynamic tree quantization, arXiv 2110.02861, section 1.3.
//
// The code of a magnitude in [0, 1] is a pattern of n bits: 7 where there is a sign bit, otherwise
// 8. Read from the top, it has E zeros, a one, and L = n - 1 - E bits that form an integer j. It
// means
//     10^-E (0.1 + 0.9 (j + 1) / 2^L).
// The interval from 10^-(E+1) to 10^-E falls into 2^L equal steps, and this is the right end of
// step j. The pattern 0 means 0. So small magnitudes trade digits for range, 1 is exact, and a
// larger pattern is a larger value.
//
// A block of kQuantBlock elements is divided by its largest magnitude, the scale.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/kernels.h"

namespace ladder {

/// The 256 codes of a byte, and the numbers that they stand for.
struct QuantCode {
  bool has_sign;                    ///< the top bit is a sign; codes 0 and 128 both mean zero
  int magnitudes;                   ///< 128 or 256
  std::array<float, 256> value;     ///< the number of each code
  std::array<float, 255> midpoint;  ///< [i]: half way between magnitudes i and i + 1
};

constexpr QuantCode make_quant_code(bool has_sign) {
  QuantCode code{
      .has_sign = has_sign, .magnitudes = has_sign ? 128 : 256, .value = {}, .midpoint = {}};
  const int bits = has_sign ? 7 : 8;
  for (unsigned pattern = 1; pattern < unsigned(code.magnitudes); ++pattern) {
    const int L = std::bit_width(pattern) - 1;
    double decade = 1;
    for (int zeros = 0; zeros < bits - 1 - L; ++zeros) decade /= 10;
    const double steps = 1 << L;
    const double j = pattern - steps;
    code.value[pattern] = static_cast<float>(decade * (0.1 + 0.9 * (j + 1) / steps));
    if (has_sign) code.value[128 + pattern] = -code.value[pattern];
  }
  for (int i = 0; i + 1 < code.magnitudes; ++i)
    code.midpoint[i] = (code.value[i] + code.value[i + 1]) / 2;
  return code;
}

/// For first moments.
inline constexpr QuantCode kSignedCode = make_quant_code(true);
/// For second moments.
inline constexpr QuantCode kUnsignedCode = make_quant_code(false);

/// The code nearest to x; x is in [-1, 1], or in [0, 1] without a sign. Half way between two codes,
/// the smaller magnitude is taken. A positive x never becomes 0 in the unsigned code: a second
/// moment stands under a root in a denominator, where 0 would turn a small step into a huge one.
constexpr uint8_t quantize(const QuantCode& code, float x) {
  const float magnitude = x < 0 ? -x : x;
  // Binary search for the first midpoint that is not below the magnitude.
  int low = 0;
  for (int half = code.magnitudes / 2; half > 0; half /= 2)
    low += code.midpoint[low + half - 1] < magnitude ? half : 0;
  if (!code.has_sign) return static_cast<uint8_t>(low == 0 && magnitude > 0 ? 1 : low);
  return static_cast<uint8_t>(x < 0 && low > 0 ? 128 + low : low);
}

// quantize() without a search. The top 16 bits of a float are its sign, its exponent and 7 bits of
// its mantissa. Floats with the same top 16 bits form a bucket. An octave has 128 buckets, so a
// bucket is narrow: at most one midpoint between two codes falls into it. A table gives the code of
// the lowest float of a bucket, and one comparison with the midpoint above that code does the rest.

/// The tables of one code. Magnitudes below the first bucket count as part of it.
struct QuantTable {
  static constexpr int kDrop = 16;
  static constexpr int32_t kFirst = std::bit_cast<int32_t>(0x1p-25f) >> kDrop;
  static constexpr int32_t kLast = std::bit_cast<int32_t>(1.0f) >> kDrop;

  std::array<int32_t, kLast - kFirst + 1> lowest;  ///< midpoints below the bucket's first float
  std::array<float, 256> midpoint;                 ///< as in QuantCode; infinity after the last
};

constexpr QuantTable make_quant_table(const QuantCode& code) {
  QuantTable table{};
  const int last = code.magnitudes - 1;
  for (int i = 0; i < 256; ++i)
    table.midpoint[i] = i < last ? code.midpoint[i] : std::numeric_limits<float>::infinity();
  int below = 0;
  for (int32_t bucket = QuantTable::kFirst; bucket <= QuantTable::kLast; ++bucket) {
    const float first = std::bit_cast<float>(bucket << QuantTable::kDrop);
    const int before = below;
    while (table.midpoint[below] < first) ++below;
    CHECK(below - before <= 1, "two midpoints in one bucket");
    table.lowest[bucket - QuantTable::kFirst] = below;
  }
  return table;
}

/// Turns x[0..count) into codes and one scale. A block of zeros has scale 0 and codes 0.
inline void quantize_block(const QuantCode& code, uint8_t* codes, float& scale, const float* x,
                           int64_t count) {
  scale = 0;
  for (int64_t i = 0; i < count; ++i) scale = std::max(scale, std::abs(x[i]));
  for (int64_t i = 0; i < count; ++i) codes[i] = scale == 0 ? 0 : quantize(code, x[i] / scale);
}

/// The inverse of quantize_block, up to rounding.
inline void dequantize_block(const QuantCode& code, float* x, const uint8_t* codes, float scale,
                             int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = code.value[codes[i]] * scale;
}

}  // namespace ladder
