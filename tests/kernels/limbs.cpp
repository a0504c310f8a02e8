// Squared norms as integers: exact, the same in any order, and NaN if a leaf is not finite.
#include "kernels/limbs.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

using Limbs = std::array<int64_t, kLimbs>;

/// Bits of an integer multiple of 2^-80, lowest first. Sums by written addition, bit by bit.
class Bits {
 public:
  void add(double x) {
    int exponent = 0;
    const auto mantissa = static_cast<uint64_t>(std::ldexp(std::frexp(x, &exponent), 53));
    for (int i = 0; i < 53; ++i) {
      const int at = exponent - 53 + i + kFractionBits;
      if (at >= 0 && (mantissa >> i & 1)) ripple(static_cast<size_t>(at));
    }
  }
  bool operator[](size_t i) const { return bits_[i]; }
  double value() const {
    long double sum = 0;
    for (size_t i = bits_.size(); i-- > 0;)
      if (bits_[i]) sum += std::ldexp(1.0L, static_cast<int>(i) - kFractionBits);
    return static_cast<double>(sum);
  }

 private:
  void ripple(size_t at) {
    for (; bits_[at]; ++at) bits_[at] = false;
    bits_[at] = true;
  }
  std::array<bool, 512> bits_{};
};

/// Limbs carried, so that each holds 32 bits.
Limbs carried(Limbs limbs) {
  for (size_t j = 0; j + 1 < kNonfiniteLimb; ++j) {
    limbs[j + 1] += limbs[j] >> kLimbBits;
    limbs[j] &= 0xFFFFFFFF;
  }
  return limbs;
}

/// Sums of squares over all magnitudes that floats can have, and below.
std::vector<double> leaves(int64_t n) {
  Sandbox box(ref_kernels(), Dtype::F64);
  const Tensor mantissa = box.random({n}, 0.5, 1), exponent = box.random({n}, -100, 261);
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(std::ldexp(at(mantissa, i), static_cast<int>(at(exponent, i))));
  return out;
}

Limbs sum_of(const std::vector<double>& values) {
  Limbs limbs{};
  for (const double value : values) add_to_limbs(limbs.data(), value);
  return limbs;
}

void expect_exact(const std::vector<double>& values) {
  Bits want;
  for (const double value : values) want.add(value);
  const Limbs got = carried(sum_of(values));
  for (size_t bit = 0; bit < kNonfiniteLimb * kLimbBits; ++bit)
    ASSERT_EQ(got[bit / kLimbBits] >> (bit % kLimbBits) & 1, want[bit]) << bit;
  EXPECT_NEAR(limbs_value(got.data()) / want.value(), 1, 0x1p-52);
}

TEST(Limbs, AreTheExactSum) {
  const std::vector<double> values = leaves(3000);
  expect_exact(values);
  for (int i = 0; i < 300; ++i) expect_exact({values[i], values[i + 1]});
}

TEST(Limbs, ForgetTheOrder) {
  std::vector<double> values = leaves(1000);
  const Limbs want = sum_of(values);
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(sum_of(values), want);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(sum_of(values), want);

  // As ranks do it: each sums its part, and the limbs are added as integers.
  Limbs joined = sum_of({values.begin() + 300, values.end()});
  const Limbs part = sum_of({values.begin(), values.begin() + 300});
  for (size_t j = 0; j < joined.size(); ++j) joined[j] += part[j];
  EXPECT_EQ(joined, want);
}

TEST(Limbs, TheSameIntegerHasTheSameValue) {
  Limbs low{}, high{};
  low[0] = (int64_t{5} << 33) + 7;
  high[0] = 7;
  high[1] = 10;
  EXPECT_EQ(limbs_value(low.data()), limbs_value(high.data()));
  EXPECT_EQ(limbs_value(high.data()), std::ldexp(10.0 * 0x1p32 + 7, -kFractionBits));
}

/// Added without a carry, the limbs of these ranks would not fit into 64 bits.
TEST(Limbs, ManyRanksWithManyLeaves) {
  Limbs sum{};
  for (int rank = 0; rank < 64; ++rank) {
    Limbs own{};
    own[1] = own[2] = int64_t{1} << 62;
    const double before = limbs_value(own.data());
    carry_limbs(own.data());
    EXPECT_EQ(limbs_value(own.data()), before);
    for (size_t j = 0; j < own.size(); ++j) sum[j] += own[j];
  }
  EXPECT_EQ(limbs_value(sum.data()), 0x1p68 * (limb_weight(1) + limb_weight(2)));
}

TEST(Limbs, SmallAndLarge) {
  EXPECT_EQ(limbs_value(sum_of({}).data()), 0);
  EXPECT_EQ(limbs_value(sum_of({0.0, 0.0}).data()), 0);
  EXPECT_EQ(limbs_value(sum_of({0x1p-80}).data()), 0x1p-80);
  EXPECT_EQ(limbs_value(sum_of({0x1.8p-80}).data()), 0x1p-80);  // half a unit is dropped
  EXPECT_EQ(limbs_value(sum_of({0x1p-81, 5e-324}).data()), 0);
  EXPECT_EQ(limbs_value(sum_of({1.0, 0x1p-60}).data()), 1 + 0x1p-60);
  const double square = std::pow(double{std::numeric_limits<float>::max()}, 2);
  EXPECT_EQ(limbs_value(sum_of({16 * square}).data()), 16 * square);
  EXPECT_EQ(limbs_value(sum_of(std::vector<double>(64, 16 * square)).data()), 1024 * square);
}

TEST(Limbs, WhatIsNotFiniteShows) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const double bad : {inf, std::nan(""), 0x1p272, 1e300}) {
    EXPECT_TRUE(std::isnan(limbs_value(sum_of({1.0, bad}).data()))) << bad;
    EXPECT_TRUE(std::isnan(limbs_value(sum_of({bad, bad, 2.0}).data()))) << bad;
  }
}

}  // namespace
}  // namespace ladder::test
