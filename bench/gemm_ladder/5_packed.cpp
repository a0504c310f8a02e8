// Rung 5: A and B are copied into panels, in the order in which the tile reads them.
//
// The blocking is that of Goto and van de Geijn (2008, doi 10.1145/1356052.1356053): a panel of B
// (kDepth x kNr) stays in L1 while the panels of A pass, a block of A (kRows x kDepth) in L2.
#include <algorithm>

#include "bench/gemm_ladder/ladder.h"
#include "bench/gemm_ladder/tile.h"

namespace ladder::bench {
namespace {

constexpr int64_t kDepth = 256;
constexpr int64_t kRows = 24 * kMr;

/// Rows of x (with K columns) as panels of W rows, columns [k0, k0 + depth): element (i, k) of a
/// panel goes to k * W + i. Rows missing in the last panel repeat the last one there is; what comes
/// of them is not written.
template <int64_t W>
void pack(float* out, const float* x, int64_t rows, int64_t K, int64_t k0, int64_t depth) {
  const int64_t whole = (rows + W - 1) / W * W;
  for (int64_t row = 0; row < whole; ++row) {
    float* to = out + row / W * W * depth + row % W;
    const float* from = x + std::min(row, rows - 1) * K + k0;
    for (int64_t k = 0; k < depth; ++k) to[k * W] = from[k];
  }
}

/// Adds a tile, or what of it lies inside C, to C. The first slab of K overwrites C instead.
void add_to(float* c, int64_t stride, const Sums& sums, int64_t rows, int64_t cols, bool first) {
  std::array<float, kMr * kNr> tile;
  for (size_t i = 0; i < kMr; ++i) {
    store(sums[i][0], tile.data() + i * kNr);
    store(sums[i][1], tile.data() + i * kNr + kLanes);
  }
  const float* from = tile.data();
  for (int64_t i = 0; i < rows; ++i, from += kNr, c += stride)
    for (int64_t j = 0; j < cols; ++j) c[j] = first ? from[j] : c[j] + from[j];
}

}  // namespace

void packed(const Matrices& x) {
  const Floats a = floats(kRows * kDepth);
  const Floats b = floats((x.N + kNr - 1) / kNr * kNr * kDepth);
  for (int64_t k0 = 0; k0 < x.K; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, x.K - k0);
    pack<kNr>(b.get(), x.b, x.N, x.K, k0, depth);
    for (int64_t m0 = 0; m0 < x.M; m0 += kRows) {
      const int64_t rows = std::min(kRows, x.M - m0);
      pack<kMr>(a.get(), x.a + m0 * x.K, rows, x.K, k0, depth);
      for (int64_t n = 0; n < x.N; n += kNr)
        for (int64_t m = 0; m < rows; m += kMr)
          add_to(x.c + (m0 + m) * x.N + n, x.N,
                 multiply(a.get() + m * depth, 1, kMr, b.get() + n * depth, kNr, depth),
                 std::min(kMr, rows - m), std::min(kNr, x.N - n), k0 == 0);
    }
  }
}

}  // namespace ladder::bench
