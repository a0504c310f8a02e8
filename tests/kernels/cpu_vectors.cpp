// What `cpu` computes a vector at a time: the encoder of 8-bit states, which must give the codes
// and values of kernels/quantize.h; and its exponential function, against that of double.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/quantize.h"
#include "kernels/cpu/simd.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

/// Compares quantize() of whole vectors with quantize() of single values.
template <bool HasSign>
void expect_same_codes(std::vector<float> values) {
  const QuantCode& code = HasSign ? kSignedCode : kUnsignedCode;
  values.resize(static_cast<size_t>(round_up(std::ssize(values), kLanes)));
  for (size_t i = 0; i < values.size(); i += kLanes) {
    int32_t got[kLanes];
    hn::StoreU(quantize<HasSign>(load(values.data() + i)), Ints{}, got);
    for (size_t lane = 0; lane < kLanes; ++lane)
      ASSERT_EQ(got[lane], ladder::quantize(code, values[i + lane])) << values[i + lane];
  }
}

TEST(CpuQuantize, FloatsAroundMidpointsAndBuckets) {
  std::vector<float> values = {0, 1, 0x1p-149F, 0x1p-126F, NAN};
  const auto around = [&](float x) {
    uint32_t bits = std::bit_cast<uint32_t>(x) - 3;
    for (int i = 0; i < 7; ++i) values.push_back(std::min(1.0F, std::bit_cast<float>(bits++)));
  };
  for (const QuantCode* code : {&kSignedCode, &kUnsignedCode})
    for (int i = 0; i + 1 < code->magnitudes; ++i) around(code->midpoint[i]);
  for (int32_t bucket = QuantTable::kFirst - 200; bucket <= QuantTable::kLast; ++bucket)
    around(std::bit_cast<float>(bucket << QuantTable::kDrop));
  expect_same_codes<false>(values);
  for (size_t i = values.size(); i-- > 0;) values.push_back(-values[i]);
  expect_same_codes<true>(values);
}

TEST(CpuQuantize, EveryThousandthFloatUpToOne) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(1.0F); bits += 997)
    values.push_back(std::bit_cast<float>(bits));
  expect_same_codes<false>(values);
  expect_same_codes<true>(values);
}

template <bool HasSign>
void expect_same_block(const QuantBlock& x, int64_t count) {
  const QuantCode& code = HasSign ? kSignedCode : kUnsignedCode;
  std::array<uint8_t, kQuantBlock + 1> got, want;
  got.fill(99);
  want.fill(99);
  float got_scale = -1, want_scale = -1;
  quantize_block<HasSign>(got.data(), got_scale, x, count);
  ladder::quantize_block(code, want.data(), want_scale, x.data(), count);
  EXPECT_EQ(got, want) << count;
  EXPECT_EQ(got_scale, want_scale) << count;
  const QuantBlock back = dequantize_block<HasSign>(got.data(), got_scale, count);
  QuantBlock expected{};
  ladder::dequantize_block(code, expected.data(), want.data(), want_scale, count);
  for (size_t i = 0; i < kQuantBlock; ++i)
    EXPECT_TRUE(back[i] == expected[i] || (std::isnan(back[i]) && std::isnan(expected[i]))) << i;
}

TEST(CpuQuantize, BlocksOfAnySizeAndLength) {
  std::mt19937 engine(20240609);
  for (int64_t count = 1; count <= kQuantBlock; ++count)
    for (const int exponent : {-140, -60, 0, 120}) {
      QuantBlock x{};
      for (int64_t i = 0; i < count; ++i) {
        const double digits = static_cast<double>(engine()) * 0x1p-31 - 1;
        x[static_cast<size_t>(i)] =
            static_cast<float>(std::ldexp(digits, exponent - static_cast<int>(engine() % 30)));
      }
      expect_same_block<true>(x, count);
      for (float& value : x) value = std::abs(value);
      expect_same_block<false>(x, count);
    }
}

TEST(CpuQuantize, ZerosAndNumbersThatAreNone) {
  QuantBlock x{};
  expect_same_block<true>(x, kQuantBlock);
  expect_same_block<false>(x, 5);
  x[3] = NAN;
  x[4] = 2;
  expect_same_block<true>(x, kQuantBlock);
  x[4] = 0;  // the rest is zero
  expect_same_block<true>(x, kQuantBlock);
  expect_same_block<false>(x, kQuantBlock);
  x[5] = INFINITY;
  expect_same_block<false>(x, 64);
}

/// The lanes of exp(x, ..., x), which must all be the same.
float exp_of(float x) {
  std::array<float, kLanes> lanes;
  store(exp(broadcast(x)), lanes.data());
  for (const float lane : lanes)
    EXPECT_EQ(std::bit_cast<uint32_t>(lane), std::bit_cast<uint32_t>(lanes[0])) << x;
  return lanes[0];
}

/// How far exp(x) is from e^x, in units of the last place that a float near e^x has.
double error_in_ulp(float x) {
  const double exact = std::exp(static_cast<double>(x));
  return std::abs(exp_of(x) - exact) / std::ldexp(1, std::ilogb(exact) - 23);
}

// Every 997th float, from either end to where e^x is 1.
TEST(CpuExp, IsRightToAboutOneUlp) {
  for (const float end : {88.02F, -87.336F})
    for (float x = end; std::abs(x) > 1e-30F;
         x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) - 997))
      ASSERT_LT(error_in_ulp(x), 1.02) << x;
  EXPECT_EQ(exp_of(0), 1);
  EXPECT_EQ(exp_of(-0.0F), 1);
}

TEST(CpuExp, PastItsBounds) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float x : {-87.34F, -100.0F, -3e38F, -kInf}) EXPECT_EQ(exp_of(x), 0) << x;
  for (const float x : {88.02F, 89.0F, 3e38F, kInf}) {
    EXPECT_EQ(exp_of(x), exp_of(88.02F)) << x;
    EXPECT_LT(exp_of(x), kInf) << x;
  }
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace ladder::test
