// The angles of rotary positions, held against their definition in the C library's doubles.
#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "common/model/config.h"
#include "common/model/rope.h"

namespace ladder {
namespace {

TEST(Rope, FrequenciesAreThoseOfThePaper) {
  const Rope rope;
  for (const int64_t HS : {2, 16, 128})
    for (int64_t i = 0; i < HS / 2; ++i)
      EXPECT_NEAR(rope_frequency(rope, i, HS), std::pow(1e4, -2.0 * static_cast<double>(i) / HS),
                  1e-15)
          << i;
  EXPECT_EQ(rope_frequency(rope, 0, 64), 1);
}

// Written with wavelengths, as the report of Llama 3.1 has it.
TEST(Rope, LongTextsSlowDownWhatTurnsSlowly) {
  const Rope rope = preset("llama3-405b").rope;
  int fast = 0, slow = 0, between = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const double frequency = std::pow(5e5, -static_cast<double>(i) / 64);
    const double wavelength = 2 * std::numbers::pi / frequency;
    double wanted = frequency;
    if (wavelength > 8192.0 / 1) {
      wanted = frequency / 8;
      ++slow;
    } else if (wavelength > 8192.0 / 4) {
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      wanted = (1 - smooth) * frequency / 8 + smooth * frequency;
      ++between;
    } else {
      ++fast;
    }
    EXPECT_NEAR(rope_frequency(rope, i, 128), wanted, 1e-13 * wanted) << i;
  }
  EXPECT_GT(std::min({fast, slow, between}), 2);
}

TEST(Rope, ARowHoldsCosinesThenSinesRoundedOnce) {
  constexpr int64_t kTokens = 1000, kHead = 8;
  std::vector<float> memory(kTokens * kHead);
  fill_angles(Arena(), {.ptr = memory.data(), .shape = {kTokens, kHead}}, {.theta = 5e5});
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t i = 0; i < kHead / 2; ++i) {
      const double angle = static_cast<double>(t) * std::pow(5e5, -static_cast<double>(i) / 4);
      const auto at = static_cast<size_t>(t * kHead + i);
      EXPECT_NEAR(memory[at], std::cos(angle), 6e-8) << t << " " << i;
      EXPECT_NEAR(memory[at + kHead / 2], std::sin(angle), 6e-8) << t << " " << i;
    }
}

}  // namespace
}  // namespace ladder
