// Rung 6: every thread computes some rows of C. No two write the same place, so nothing is locked.
#include "bench/gemm_ladder/ladder.h"
#include "kernels/cpu/team.h"

namespace ladder::bench {

void threaded(const Matrices& x, int threads) {
  auto part = [&](int thread) {
    const int64_t begin = x.M * thread / threads;
    const int64_t end = x.M * (thread + 1) / threads;
    packed({.M = end - begin,
            .N = x.N,
            .K = x.K,
            .a = x.a + begin * x.K,
            .b = x.b,
            .c = x.c + begin * x.N});
  };
  Team::mine(threads).run(part);
}

}  // namespace ladder::bench
