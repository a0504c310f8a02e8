// Products of two blocks of attention in scratch: contiguous, widened to F32, padded to whole
// tiles. gemm() packs its factors first; these blocks are small enough to be read in place.
//
// A block has up to kBlock queries (t) and as many keys (u), cut at the same tokens. If both are
// the same tokens, the block lies on the diagonal: a query sees no later key. Tiles without a pair
// that counts are then left out. In the few tiles that the diagonal cuts, the other pairs have
// weight zero. (Zero times NaN is NaN, so a NaN may reach the neighbors in its tile.)
#pragma once

#include <algorithm>
#include <array>

#include "kernels/cpu/simd.h"
#include "kernels/tree.h"

namespace ladder::cpu {

/// A tile of sums stays in registers: see kRowsInRegisters.
constexpr int64_t kTileRows = kRowsInRegisters;
constexpr int64_t kTileCols = 2 * kLanes;
/// Rows of a lower tile. For example, 64 rows are 4 * 12 + 2 * 8 (or 10 * 6 + 4), and 32 are
/// 2 * 12 + 8.
constexpr int64_t kFewRows = kTileRows / 3 * 2;
/// Queries or keys of a block: a whole number of tiles in both directions.
constexpr int64_t kBlock = 96;
static_assert(kBlock % kTileRows == 0 && kBlock % kTileCols == 0);

/// What a product sums, and what the diagonal leaves out of it.
enum class Sum : uint8_t {
  Scores,   ///< c[t,u] = sum_d a[t,d] b[d,u]: no columns after the rows
  Queries,  ///< c[t,d] = sum_u a[t,u] b[u,d]: no u after the rows
  Keys,     ///< c[u,d] = sum_t a[t,u] b[t,d]: no t before the rows
};

/// A product of two blocks: its operands and its sums.
struct BlockProduct {
  int64_t M = 0, N = 0, K = 0;  ///< rows and columns of c, terms of a sum
  const float* a = nullptr;
  int64_t a_stride = 0;
  const float* b = nullptr;
  int64_t b_stride = 0;
  float* c = nullptr;  ///< written in whole tiles
  int64_t c_stride = 0;
  bool diagonal = false;
  const float* keep = nullptr;  ///< (M): sums begin at keep[i] c[i,:]; null: at +0
};

/// The tile of c at (m, n). Each of its sums adds k in ascending order, by fused multiply-adds.
template <Sum sum, int64_t Rows>
HWY_INLINE void tile(const BlockProduct& p, int64_t m, int64_t n, Range k) {
  constexpr bool kAcross = sum == Sum::Keys;  // a's rows are k
  std::array<std::array<Vec, 2>, Rows> acc;
  float* c = p.c + m * p.c_stride + n;
#pragma GCC unroll 16
  for (int64_t i = 0; i < Rows; ++i) {
    auto& row = acc[static_cast<size_t>(i)];
    row = {zero(), zero()};
    if (p.keep == nullptr) continue;
    const Vec kept = broadcast(p.keep[m + i]);
    row = {hn::Mul(kept, load(c + i * p.c_stride)),
           hn::Mul(kept, load(c + i * p.c_stride + kLanes))};
  }
  const int64_t stride = p.a_stride;
  const float* a = kAcross ? p.a + k.begin * stride + m : p.a + m * stride + k.begin;
  const float* b = p.b + k.begin * p.b_stride + n;
  for (int64_t left = k.size(); left > 0; --left) {
    const Vec b0 = load(b);
    const Vec b1 = load(b + kLanes);
#pragma GCC unroll 16
    for (int64_t i = 0; i < Rows; ++i) {
      const Vec ai = broadcast(kAcross ? a[i] : a[i * stride]);
      auto& row = acc[static_cast<size_t>(i)];
      row[0] = hn::MulAdd(ai, b0, row[0]);
      row[1] = hn::MulAdd(ai, b1, row[1]);
    }
    a += kAcross ? stride : 1;
    b += p.b_stride;
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < Rows; ++i, c += p.c_stride) {
    const auto& [c0, c1] = acc[static_cast<size_t>(i)];
    store(c0, c);
    store(c1, c + kLanes);
  }
}

/// The same, but only for those k for which the tile has a pair that counts.
template <Sum sum, int64_t Rows>
void tile_within(const BlockProduct& p, int64_t m, int64_t n) {
  Range k{0, p.K};
  if (p.diagonal) {
    const int64_t end = m + Rows;  // of the tile's rows
    if (sum == Sum::Scores && n >= end) return;
    if (sum == Sum::Queries) k.end = std::min(k.end, end);
    if (sum == Sum::Keys) k.begin = m;
  }
  tile<sum, Rows>(p, m, n, k);
}

/// Whether the next tile is a lower one, if `left` rows are left.
constexpr bool lower_tile(int64_t left) {
  return left <= kFewRows || (left > kTileRows && left <= 2 * kFewRows);
}

/// How many rows are written for `rows` rows, in whole tiles.
constexpr int64_t tiled_rows(int64_t rows) {
  int64_t m = 0;
  while (m < rows) m += lower_tile(rows - m) ? kFewRows : kTileRows;
  return m;
}
static_assert(tiled_rows(kBlock) == kBlock && tiled_rows(64) == 64 && tiled_rows(32) == 32);

/// c = keep c + the product of a and b, tile by tile.
template <Sum sum>
void multiply(const BlockProduct& p) {
  for (int64_t n = 0; n < p.N; n += kTileCols)
    for (int64_t m = 0; m < p.M;) {
      if (p.M == 1) {
        tile_within<sum, 1>(p, m, n);
        ++m;
      } else if (lower_tile(p.M - m)) {
        tile_within<sum, kFewRows>(p, m, n);
        m += kFewRows;
      } else {
        tile_within<sum, kTileRows>(p, m, n);
        m += kTileRows;
      }
    }
}

}  // namespace ladder::cpu
