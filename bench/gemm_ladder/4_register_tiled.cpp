// Rung 4: a tile of C is summed up in registers over all of K, and written once.
#include <algorithm>

#include "bench/gemm_ladder/ladder.h"
#include "bench/gemm_ladder/tile.h"
#include "kernels/check.h"

namespace ladder::bench {

void register_tiled(const Matrices& x) {
  CHECK(x.M >= kMr && x.N >= kNr, "{} x {} is smaller than a tile, {} x {}", x.M, x.N, kMr, kNr);
  const Floats bt = transposed(x.b, x.N, x.K);
  for (int64_t n0 = 0; n0 < x.N; n0 += kNr)
    for (int64_t m0 = 0; m0 < x.M; m0 += kMr) {
      // At the edge a tile moves back over sums that exist already, and writes them again.
      const int64_t m = std::min(m0, x.M - kMr);
      const int64_t n = std::min(n0, x.N - kNr);
      const Sums sums = multiply(x.a + m * x.K, x.K, 1, bt.get() + n, x.N, x.K);
      float* c = x.c + m * x.N + n;
      for (const auto& row : sums) {
        store(row[0], c);
        store(row[1], c + kLanes);
        c += x.N;
      }
    }
}

}  // namespace ladder::bench
