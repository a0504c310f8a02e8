// A tile of sums that stays in registers, for rungs 4 and 5.
#pragma once

#include <array>

#include "kernels/cpu/simd.h"

namespace ladder::bench {

// kMr x 2 vectors of sums, 2 of B and 1 of A; see kRowsInRegisters.
constexpr int64_t kMr = kRowsInRegisters;
constexpr int64_t kNr = 2 * kLanes;

using Sums = std::array<std::array<Vec, 2>, kMr>;

/// For each k: kMr numbers of A times kNr numbers of B, added to kMr x kNr sums. Both vectors of B
/// are used kMr times, each number of A for kNr sums, and no sum leaves its register.
/// @param a element (i, k) at a[i * a_row + k * a_step]
/// @param b element (k, n) at b[k * b_step + n]
HWY_INLINE Sums multiply(const float* a, int64_t a_row, int64_t a_step, const float* b,
                         int64_t b_step, int64_t K) {
  Sums sums;
  for (auto& row : sums) row = {zero(), zero()};
  for (int64_t k = 0; k < K; ++k) {
    const Vec b0 = load(b + k * b_step);
    const Vec b1 = load(b + k * b_step + kLanes);
#pragma GCC unroll 16
    for (size_t i = 0; i < kMr; ++i) {
      const Vec ai = broadcast(a[static_cast<int64_t>(i) * a_row + k * a_step]);
      sums[i][0] = hn::MulAdd(ai, b0, sums[i][0]);
      sums[i][1] = hn::MulAdd(ai, b1, sums[i][1]);
    }
  }
  return sums;
}

}  // namespace ladder::bench
