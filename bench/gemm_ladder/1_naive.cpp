// Rung 1: the formula, word for word.
#include <cmath>

#include "bench/gemm_ladder/ladder.h"

namespace ladder::bench {

void naive(const Matrices& x) {
  for (int64_t m = 0; m < x.M; ++m)
    for (int64_t n = 0; n < x.N; ++n) {
      float sum = 0;
      // Each step waits for the one before, and the compiler may not add in another order.
      for (int64_t k = 0; k < x.K; ++k) sum = std::fma(x.a[m * x.K + k], x.b[n * x.K + k], sum);
      x.c[m * x.N + n] = sum;
    }
}

}  // namespace ladder::bench
