// Attention where scores are as large as 1e9, as a bad step leaves them: neighbors of a float that
// large are 64 apart. All tables must agree on what is left of the softmax there.
//
// Queries and keys are whole numbers times a power of two, so that every table sums q . k exactly
// and rounds the same score; eight channels, so that 1 / sqrt(8) does make it round.
#pragma once

#include <algorithm>

#include "tests/kernels/testing.h"

namespace ladder::test {

struct LargeScores {
  static constexpr int64_t kTokens = 200, kHS = 8;
  static constexpr int kLargest = 22;  ///< scores to 8 * 15 * 15 * 2^22 / sqrt(8) = 2.7e9

  /// Whether scores differ by so much that the largest has all the weight.
  bool one_takes_all;
  Tensor qkv, dout;  ///< (1,T,3*HS), (1,T,HS)

  /// Scores to about 636 * 2^exponent; exponent even.
  LargeScores(Sandbox& box, Dtype dtype, int exponent)
      : one_takes_all(std::ldexp(1 / std::sqrt(8), exponent) > 200),
        qkv(box.random(dtype, {1, kTokens, 3 * kHS})),
        dout(box.random(dtype, {1, kTokens, kHS})) {
    for (int64_t i = 0; i < qkv.size(); ++i)
      if (i % (3 * kHS) < 2 * kHS)
        set(qkv, i, std::ldexp(std::round(15 * at(qkv, i)), exponent / 2));
  }
};

/// out (1,T,HS), lse (1,1,T) and dqkv (1,T,3*HS) of a table.
struct LargeScoresResults {
  Tensor out, lse, dqkv;
};

/// got is as want: within what exp, log and sums may round, and what storing does.
inline void expect_agreement(const LargeScoresResults& got, const LargeScoresResults& want,
                             const LargeScores& x) {
  constexpr int64_t HS = LargeScores::kHS;
  const bool narrow = is_narrow(x.qkv.dtype);
  const double unit = narrow ? 0x1p-7 : 1e-4;
  double largest = 0;  // of queries and keys
  for (int64_t i = 0; i < x.qkv.size(); ++i) largest = std::max(largest, std::abs(at(x.qkv, i)));
  for (int64_t i = 0; i < want.lse.size(); ++i)
    ASSERT_NEAR(at(got.lse, i), at(want.lse, i), 0x1p-22 * std::abs(at(want.lse, i)) + 1e-5) << i;
  for (int64_t i = 0; i < want.out.size(); ++i)
    ASSERT_NEAR(at(got.out, i), at(want.out, i), unit) << i;
  for (int64_t i = 0; i < want.dqkv.size(); ++i) {
    // A key is weighed by up to T queries, dP - D is at most 2 HS.
    const int64_t part = i % (3 * HS) / HS;
    const double weights = part == 0 ? 1 : LargeScores::kTokens;
    ASSERT_NEAR(at(got.dqkv, i), at(want.dqkv, i),
                unit * weights * (part == 2 ? 1 : 2 * HS * largest))
        << i;
    // Then its score has no gradient, whatever rounds.
    if (!narrow && x.one_takes_all && at(want.dqkv, i) == 0) {
      ASSERT_EQ(at(got.dqkv, i), 0) << i;
    }
  }
}

}  // namespace ladder::test
