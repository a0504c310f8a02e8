// The exponential function of `cpu`, held against that of double.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/cpu/simd.h"

namespace ladder::test {
namespace {

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

// One float of 997, from either end to where e^x is 1.
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
