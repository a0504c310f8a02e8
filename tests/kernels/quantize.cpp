// The 8-bit codes: their values, the nearest code, blocks.
#include "kernels/quantize.h"

#include <vector>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

float unsigned_value(unsigned code) { return kUnsignedCode.value[code]; }
float signed_value(unsigned code) { return kSignedCode.value[code]; }

/// Value of a code by reading its bits from the top, one after the other.
double by_bits(unsigned pattern, int bits) {
  if (pattern == 0) return 0;
  int at = bits - 1;
  double decade = 1;
  for (; !(pattern >> at & 1); --at) decade *= 0.1;
  double low = 0.1, high = 1;  // each further bit halves the interval
  for (--at; at >= 0; --at) (pattern >> at & 1 ? low : high) = (low + high) / 2;
  return decade * high;
}

TEST(Quantize, ValuesFollowTheirBits) {
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_NEAR(unsigned_value(code), by_bits(code, 8), 1e-7 * unsigned_value(code));
    const double sign = code < 128 ? 1 : -1;
    EXPECT_NEAR(signed_value(code), sign * by_bits(code & 127, 7), 1e-7 * by_bits(code & 127, 7));
  }
  EXPECT_EQ(unsigned_value(255), 1);
  EXPECT_EQ(signed_value(127), 1);
  EXPECT_EQ(signed_value(255), -1);
}

TEST(Quantize, EveryCodeComesBack) {
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_EQ(quantize(kUnsignedCode, unsigned_value(code)), code);
    EXPECT_EQ(quantize(kSignedCode, signed_value(code)), code == 128 ? 0 : code);  // 128 is -0
  }
}

TEST(Quantize, HalfWayTakesTheSmallerMagnitude) {
  for (unsigned code = 1; code + 1 < 128; ++code) {
    const float middle = kSignedCode.midpoint[code];
    EXPECT_EQ(quantize(kSignedCode, middle), code);
    EXPECT_EQ(quantize(kSignedCode, std::nextafter(middle, 1.0F)), code + 1);
    EXPECT_EQ(quantize(kSignedCode, -middle), 128 + code);
    EXPECT_EQ(quantize(kSignedCode, std::nextafter(-middle, -1.0F)), 128 + code + 1);
  }
}

TEST(Quantize, TheNearestCodeIsTaken) {
  Sandbox box(ref_kernels());
  const Tensor x = box.random({3000}), power = box.random({3000}, -8, 0);
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(at(x, i) * std::pow(10, at(power, i)));
    const double got = std::abs(double{signed_value(quantize(kSignedCode, value))} - value);
    for (unsigned code = 0; code < 256; ++code)  // midpoints are rounded to float
      ASSERT_LE(got, std::abs(double{signed_value(code)} - value) + 1e-7 * std::abs(value));
  }
}

TEST(Quantize, APositiveSecondMomentIsNeverZero) {
  for (const float tiny : {1e-8F, 1e-30F, 1e-45F}) {
    EXPECT_EQ(quantize(kUnsignedCode, tiny), 1);
    EXPECT_EQ(quantize(kSignedCode, tiny), 0);
    EXPECT_EQ(quantize(kSignedCode, -tiny), 0);
  }
  EXPECT_EQ(quantize(kUnsignedCode, 0), 0);
}

TEST(Quantize, BlocksKeepTheirLargestElement) {
  Sandbox box(ref_kernels());
  for (const float size : {1e-40F, 1e-12F, 1.0F, 1e38F})
    for (const int64_t n : {1, 17, 64}) {
      std::vector<float> x(static_cast<size_t>(n)), back = x;
      const Tensor r = box.random({n});
      float largest = 0;
      for (int64_t i = 0; i < n; ++i) x[i] = size * static_cast<float>(at(r, i));
      for (const float value : x) largest = std::max(largest, std::abs(value));
      std::vector<uint8_t> codes(static_cast<size_t>(n));
      float scale = -1;
      quantize_block(kSignedCode, codes.data(), scale, x.data(), n);
      dequantize_block(kSignedCode, back.data(), codes.data(), scale, n);
      EXPECT_EQ(scale, largest);
      for (int64_t i = 0; i < n; ++i) {
        // Half of the widest step, 0.9 / 64 of the scale.
        EXPECT_LE(std::abs(back[i] - x[i]), 0.00704F * scale) << x[i];
        EXPECT_TRUE(std::abs(x[i]) < largest || back[i] == x[i]) << x[i];
      }
    }
}

TEST(Quantize, ABlockOfZerosHasScaleZero) {
  std::vector<float> x(kQuantBlock, 0.0F);
  std::vector<uint8_t> codes(kQuantBlock, 99);
  float scale = 99;
  quantize_block(kUnsignedCode, codes.data(), scale, x.data(), kQuantBlock);
  EXPECT_EQ(scale, 0);
  EXPECT_EQ(codes, std::vector<uint8_t>(kQuantBlock, 0));
  dequantize_block(kUnsignedCode, x.data(), codes.data(), scale, kQuantBlock);
  EXPECT_EQ(x, std::vector<float>(kQuantBlock, 0.0F));
}

}  // namespace
}  // namespace ladder::test
