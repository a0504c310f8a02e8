// The product tile by tile, whatever the arithmetic of a tile is (class Sums in gemm_tile.h).
// How the product is cut, from the outside in:
//   threads   each takes a rectangle of C (gemm.cpp);
//   blocks    of that rectangle, so large that the sums in the making fit the scratch;
//   chunks    of K: a piece of one leaf, or an aligned run of 2^j whole leaves (gemm_cut.h). A and
//             B of a chunk are packed into panels as the registers want them (pack.h);
//   tiles     of kMr x kNr sums, which stay in registers through a whole segment (the part of
//             one leaf that lies in the chunk).
// Between segments a tile's sums wait in slots, one for each level of the tree. The levels that
// a chunk completes by itself are reused by the next tile and so stay in the L1 cache.
#pragma once

#include <utility>

#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/pack.h"

namespace ladder {

/// Largest block of rows: its panels of A (kRows x kDepth) stay in L2.
constexpr int64_t kRows = (kLanes == 16 ? 22 : 48) * kMr;
/// Largest block of columns.
constexpr int64_t kCols = 64 * kNr;

/// Rows and columns of C that are worked on at a time, and where their sums and panels lie.
struct Block {
  int64_t rows, cols;
  float *a, *b, *kept, *local;
};

/// Floats of the panels of a block of `extent` rows or columns, a multiple of W.
template <int64_t W>
constexpr int64_t panels(int64_t extent) {
  return extent / W * panel_size(W, kDepth);
}

/// As square and as large as caches and scratch allow: the larger, the less is packed twice.
inline Block plan_block(const Cut& cut, int64_t M, int64_t N, std::span<std::byte> scratch) {
  const int64_t floats = static_cast<int64_t>(scratch.size() / sizeof(float)) - kLocalSlots * kTile;
  const int64_t kept = cut.slots() - cut.local_levels();
  const auto fits = [&](int64_t rows, int64_t cols) {
    return panels<kMr>(rows) + panels<kNr>(cols) + kept * rows * cols <= floats;
  };
  int64_t rows = kMr;
  int64_t cols = kNr;
  for (bool grown = true; grown;) {
    grown = false;
    if (rows < std::min(M, kRows) && (rows <= cols || cols >= std::min(N, kCols)) &&
        fits(rows + kMr, cols))
      rows += kMr, grown = true;
    else if (cols < std::min(N, kCols) && fits(rows, cols + kNr))
      cols += kNr, grown = true;
  }
  float* next = reinterpret_cast<float*>(scratch.data());
  const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
  Block block{
      .rows = rows, .cols = cols, .a = nullptr, .b = nullptr, .kept = nullptr, .local = nullptr};
  block.local = take(kLocalSlots * kTile);
  block.kept = take(kept * rows * cols);
  block.b = take(panels<kNr>(cols));
  block.a = take(panels<kMr>(rows));
  return block;
}

/// One chunk of K for the block at C[rows, cols]. A is packed; a panel of B is when its turn comes,
/// unless `packed` says that all are, and the memory of the next one is asked for meanwhile.
template <class Sums>
void block_chunk(const Product& p, const Cut& cut, const Block& block, const Chunk& chunk,
                 Range rows, Range cols, bool packed) {
  Slots slots{.local = block.local,
              .local_levels = cut.local_levels(),
              .parking = cut.parking(),
              .kept = block.kept,
              .stride = block.rows * block.cols};
  for (int64_t n = cols.begin; n < cols.end; n += kNr) {
    float* b = block.b + (n - cols.begin) / kNr * panel_size(kNr, chunk.steps);
    if (!packed) pack<kNr, Sums::kStep>(b, p.b, {n, n + kNr}, p.N, chunk);
    const Range next{n + kNr, packed ? n + kNr : std::min(n + 2 * kNr, cols.end)};
    for (int64_t m = rows.begin; m < rows.end; m += kMr, slots.kept += kTile) {
      ask_for(p.b, next, chunk.k, {m - rows.begin, m - rows.begin + kMr}, rows.size());
      const float* a = block.a + (m - rows.begin) / kMr * panel_size(kMr, chunk.steps);
      const Corner to{
          .p = p, .m = m, .n = n, .rows = std::min(kMr, p.M - m), .cols = std::min(kNr, p.N - n)};
      if (to.rows <= kFewRows)
        tile_chunk<Sums, kFewRows>(chunk, a, b, slots, to);
      else
        tile_chunk<Sums, kMr>(chunk, a, b, slots, to);
    }
  }
}

/// The rectangle rows x cols of C, block by block.
template <class Sums>
void rectangle_of(const Product& p, Range rows, Range cols, std::span<std::byte> scratch) {
  const Cut cut(p.K, p.leaves, Sums::kStep);
  const Block block = plan_block(cut, rows.size(), cols.size(), scratch);
  const int64_t down = (rows.size() + block.rows - 1) / block.rows;
  const int64_t across = (cols.size() + block.cols - 1) / block.cols;
  for (int64_t i = 0; i < down * across; ++i) {
    const Range r = part_of(i % down, down, rows.size(), kMr);
    const Range c = part_of(i / down, across, cols.size(), kNr);
    const Range block_rows{rows.begin + r.begin, rows.begin + r.end};
    const Range block_cols{cols.begin + c.begin, cols.begin + c.end};
    for (int64_t which = 0; which < cut.chunks(); ++which) {
      const Chunk chunk = cut.chunk(which);
      pack<kMr, Sums::kStep>(block.a, p.a, block_rows, p.M, chunk);
      // B of the only chunk is still there from the block above.
      const bool packed = cut.chunks() == 1 && i % down != 0;
      block_chunk<Sums>(p, cut, block, chunk, block_rows, block_cols, packed);
    }
  }
}

}  // namespace ladder
