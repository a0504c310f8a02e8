// Rung 3: a block of B that fits the cache is used by all rows of A before the next is fetched.
#include <algorithm>
#include <cmath>

#include "bench/gemm_ladder/ladder.h"

namespace ladder::bench {
namespace {

// 64 x 256 floats are 64 KiB, which fit any L2 cache. The piece of a row of C, 1 KiB, stays in L1
// through the 64 passes over it.
constexpr int64_t kDepth = 64;
constexpr int64_t kCols = 256;

}  // namespace

void blocked(const Matrices& x) {
  const Floats bt = transposed(x.b, x.N, x.K);
  std::fill_n(x.c, x.M * x.N, 0.0F);
  for (int64_t n0 = 0; n0 < x.N; n0 += kCols)
    for (int64_t k0 = 0; k0 < x.K; k0 += kDepth) {
      const int64_t cols = std::min(kCols, x.N - n0);
      const int64_t k1 = std::min(x.K, k0 + kDepth);
      for (int64_t m = 0; m < x.M; ++m) {
        float* __restrict c = x.c + m * x.N + n0;
        for (int64_t k = k0; k < k1; ++k) {
          const float a = x.a[m * x.K + k];
          const float* __restrict b = bt.get() + k * x.N + n0;
          for (int64_t n = 0; n < cols; ++n) c[n] = std::fma(a, b[n], c[n]);
        }
      }
    }
}

}  // namespace ladder::bench
