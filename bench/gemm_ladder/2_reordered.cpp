// Rung 2: the loop over n goes inside. Its steps are independent sums that lie side by side, so
// the compiler computes a vector of them at once.
#include <algorithm>
#include <cmath>

#include "bench/gemm_ladder/ladder.h"

namespace ladder::bench {

Floats transposed(const float* b, int64_t N, int64_t K) {
  Floats out = floats(N * K);
  // In squares: a column of all N rows would touch more lines than a cache can keep.
  constexpr int64_t kSide = 16;
  for (int64_t n0 = 0; n0 < N; n0 += kSide)
    for (int64_t k0 = 0; k0 < K; k0 += kSide)
      for (int64_t k = k0; k < std::min(K, k0 + kSide); ++k)
        for (int64_t n = n0; n < std::min(N, n0 + kSide); ++n) out.get()[k * N + n] = b[n * K + k];
  return out;
}

void reordered(const Matrices& x) {
  const Floats bt = transposed(x.b, x.N, x.K);
  for (int64_t m = 0; m < x.M; ++m) {
    float* __restrict c = x.c + m * x.N;
    std::fill_n(c, x.N, 0.0F);
    for (int64_t k = 0; k < x.K; ++k) {
      const float a = x.a[m * x.K + k];
      const float* __restrict b = bt.get() + k * x.N;
      for (int64_t n = 0; n < x.N; ++n) c[n] = std::fma(a, b[n], c[n]);
    }
  }
}

}  // namespace ladder::bench
