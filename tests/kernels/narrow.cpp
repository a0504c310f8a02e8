// The narrow formats by two definitions that share nothing with kernels/narrow.h. A value follows
// from its sign, exponent and mantissa; the nearest code is found in a table of all values.
#include "kernels/narrow.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/kernels/narrow_cases.h"

namespace ladder::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A format, in numbers that are written down rather than computed.
struct Known {
  const char* name;
  Format format;
  Dtype dtype;
  int bits, mantissa_bits, bias;
  bool has_infinity;
  double largest, smallest_normal, smallest;
};
const Known kFormats[] = {
    {"BF16", kBf16, Dtype::BF16, 16, 7, 127, true, 0x1.FEp127, 0x1p-126, 0x1p-133},
    {"F16", kF16, Dtype::F16, 16, 10, 15, true, 65504, 0x1p-14, 0x1p-24},
    {"E4M3", kE4M3, Dtype::E4M3, 8, 3, 7, false, 448, 0x1p-6, 0x1p-9},
    {"E5M2", kE5M2, Dtype::E5M2, 8, 2, 15, true, 57344, 0x1p-14, 0x1p-16},
};

/// The value of a code from its three fields.
double by_fields(const Known& f, uint32_t code) {
  const uint32_t mantissa = code & ((1U << f.mantissa_bits) - 1);
  const int exponent_bits = f.bits - 1 - f.mantissa_bits;
  const int exponent = static_cast<int>(code >> f.mantissa_bits & ((1U << exponent_bits) - 1));
  const int top = (1 << exponent_bits) - 1;
  const double sign = code >> (f.bits - 1) & 1 ? -1 : 1;
  if (exponent == top && f.has_infinity) return mantissa == 0 ? sign * kInfinity : kNaN;
  if (exponent == top && mantissa == (1U << f.mantissa_bits) - 1) return kNaN;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
  return sign * std::ldexp((1U << f.mantissa_bits) + mantissa, exponent - f.bias - f.mantissa_bits);
}

/// The nearest code by search among all values, and one step past the largest.
class Nearest {
 public:
  explicit Nearest(const Known& f) : f_(f) {
    for (uint32_t code = 0; std::isfinite(by_fields(f, code)); ++code)
      values_.push_back(by_fields(f, code));
    values_.push_back(2 * values_.back() - values_[values_.size() - 2]);
  }

  uint32_t operator()(double x, Overflow overflow) const {
    const uint32_t sign = std::signbit(x) ? 1U << (f_.bits - 1) : 0;
    const auto special = static_cast<uint32_t>(values_.size()) - 1;  // infinity, or NaN
    if (std::isnan(x)) return sign | (f_.has_infinity ? special + 1 : special);
    const double size = std::abs(x);
    const auto above = std::lower_bound(values_.begin(), values_.end(), size);
    auto code = static_cast<uint32_t>(above - values_.begin());
    if (above == values_.end()) {
      code = special;
    } else if (*above != size) {
      const double up = *above - size, down = size - *(above - 1);
      if (down < up || (down == up && code % 2 == 1)) --code;
    }
    return sign | (overflow == Overflow::Saturate ? std::min(code, special - 1) : code);
  }

 private:
  const Known& f_;
  std::vector<double> values_;
};

TEST(Narrow, EveryCodeHasTheValueOfItsFields) {
  for (const Known& f : kFormats)
    for (uint32_t code = 0; code < 1U << f.bits; ++code) {
      const double want = by_fields(f, code), got = widen(f.format, code);
      ASSERT_TRUE(std::isnan(want) ? std::isnan(got)
                                   : got == want && std::signbit(got) == std::signbit(want))
          << f.name << " " << code << " is " << got << ", not " << want;
    }
}

TEST(Narrow, TheTableInTheHeader) {
  for (const Known& f : kFormats) {
    EXPECT_EQ(f.format.bits(), f.bits) << f.name;
    EXPECT_EQ(f.format.bias(), f.bias) << f.name;
    EXPECT_EQ(widen(f.format, f.format.first_special() - 1), f.largest) << f.name;
    EXPECT_EQ(widen(f.format, 1U << f.mantissa_bits), f.smallest_normal) << f.name;
    EXPECT_EQ(widen(f.format, 1), f.smallest) << f.name;
    EXPECT_TRUE(std::isnan(widen(f.format, f.format.nan()))) << f.name;
    EXPECT_EQ(format_of(f.dtype).mantissa_bits, f.mantissa_bits) << f.name;
    EXPECT_EQ(size_of(f.dtype) * 8, f.bits) << f.name;
  }
}

TEST(Narrow, RoundsToTheNearestCodeTiesToEven) {
  for (const Known& f : kFormats) {
    const Nearest nearest(f);
    for (const float x : hard_floats(f.format))
      for (const Overflow overflow : {Overflow::ToInfinity, Overflow::Saturate}) {
        const uint32_t got = narrow(f.format, x, overflow), want = nearest(x, overflow);
        ASSERT_TRUE(same_code(f.format, got, want) && got < 1U << f.bits)
            << f.name << " of " << x << " is " << got << ", not " << want;
      }
  }
}

TEST(Narrow, OverflowAsEachFormatWants) {
  EXPECT_EQ(overflow_of(Dtype::F16), Overflow::ToInfinity);
  EXPECT_EQ(overflow_of(Dtype::BF16), Overflow::ToInfinity);
  EXPECT_EQ(overflow_of(Dtype::E4M3), Overflow::Saturate);
  EXPECT_EQ(overflow_of(Dtype::E5M2), Overflow::Saturate);
}

}  // namespace
}  // namespace ladder::test
