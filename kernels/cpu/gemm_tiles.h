// The product tile by tile, whatever the arithmetic of a tile is (class Sums in gemm_tile.h).
// How the product is cut, from the outside in:
//   threads   each takes a rectangle of C (gemm.cpp);
//   blocks    of that rectangle, so large that the sums in the making fit the scratch;
//   chunks    of K: a piece of one leaf, or an aligned run of 2^j whole leaves (gemm_cut.h). A and
//             B of a chunk are packed into panels as the registers want them (pack.h): A before
//             all tiles, a panel of B before the first that reads it, or by that one on the way;
//   tiles     of kMr x kNr sums, which stay in registers through a whole segment (the part of
//             one leaf that lies in the chunk).
// Between segments a tile's sums wait in slots, one for each level of the tree. The levels that
// a chunk completes by itself are reused by the next tile and so stay in the L1 cache.
#pragma once

#include <utility>

#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/pack.h"

namespace ladder {

/// Most panels of A in a block whose chunks have kDepth steps: they stay in L2.
constexpr int64_t kPanels = kLanes == 16 ? 22 : 48;
/// Largest block of columns.
constexpr int64_t kCols = 64 * kNr;

/// Rows and columns of C that are worked on at a time, and where their sums and panels lie.
struct Block {
  int64_t rows, cols;
  float *a, *b, *kept, *local;
};

/// Floats of the panels of a block of `extent` rows or columns, a multiple of W.
template <int64_t W>
constexpr int64_t panels(int64_t extent, int64_t depth) {
  return extent / W * panel_size(W, depth);
}

/// As square and as large as caches and scratch allow: the larger, the less is packed twice.
inline Block plan_block(const Cut& cut, int64_t M, int64_t N, std::span<std::byte> scratch) {
  const int64_t floats = static_cast<int64_t>(scratch.size() / sizeof(float)) - kLocalSlots * kTile;
  const int64_t kept = cut.slots() - cut.local_levels();
  // Of B all panels are kept for the block below, or one passes after the other.
  const auto panels_of_b = [&](int64_t cols) {
    return panels<kNr>(cut.chunks() > 1 ? kNr : cols, cut.depth());
  };
  const auto fits = [&](int64_t rows, int64_t cols) {
    return panels<kMr>(rows, cut.depth()) + panels_of_b(cols) + kept * rows * cols <= floats;
  };
  const int64_t most_rows = kPanels * kDepth / cut.depth() * kMr;
  int64_t rows = kMr;
  int64_t cols = kNr;
  for (bool grown = true; grown;) {
    grown = false;
    if (rows < std::min(M, most_rows) && (rows <= cols || cols >= std::min(N, kCols)) &&
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
  block.b = take(panels_of_b(cols));
  block.a = take(panels<kMr>(rows, cut.depth()));
  return block;
}

/// How often a tile asks for memory on its way through a chunk.
inline int64_t pieces(const Chunk& chunk) {
  int64_t count = 0;
  for (int s = 0; s < chunk.count; ++s)
    count += (chunk.segments[static_cast<size_t>(s)].steps + kPiece - 1) / kPiece;
  return count;
}

/// Whether the panel of B from row n on can be packed by the tile that reads it first: its rows are
/// neighbours in memory, whole, and each step is full.
template <class Sums>
bool packs_on_the_way(const Product& p, const Chunk& chunk, int64_t n) {
  return p.b.stride_k != 1 && n + kNr <= p.N && chunk.k.size() == chunk.steps * Sums::kStep &&
         p.b.dtype == (Sums::kStep == 1 ? Dtype::F32 : Dtype::BF16);
}

/// f(b) for the panel of B from row n on, which is not packed yet.
template <class Sums, class F>
void pack_on_the_way(const Product& p, const Chunk& chunk, int64_t n, float* panel, F&& f) {
  using T = std::conditional_t<Sums::kStep == 1, float, Bf16>;
  const T* from = static_cast<const T*>(p.b.ptr) + chunk.k.begin * p.b.stride_k + n;
  f(Packing<Sums::kStep, T>(panel, from, p.b.stride_k));
}

/// Panels of B in a block: each is packed in the place of the one before, or kept for the block
/// below, or still there from the block above.
enum class PanelsOfB : uint8_t { Pass, Keep, Kept };

/// One chunk of K for the block at C[rows, cols]. A is packed; a panel of B is when its turn comes,
/// and the memory of the next one is asked for meanwhile.
template <class Sums>
void block_chunk(const Product& p, const Cut& cut, const Block& block, const Chunk& chunk,
                 Range rows, Range cols, PanelsOfB panels) {
  Slots slots{.local = block.local,
              .local_levels = cut.local_levels(),
              .parking = cut.parking(),
              .kept = block.kept,
              .stride = block.rows * block.cols};
  const bool packed = panels == PanelsOfB::Kept;
  for (int64_t n = cols.begin; n < cols.end; n += kNr) {
    const int64_t place = panels == PanelsOfB::Pass ? 0 : (n - cols.begin) / kNr;
    float* b = block.b + place * panel_size(kNr, chunk.steps);
    const bool on_the_way = !packed && packs_on_the_way<Sums>(p, chunk, n);
    if (!packed && !on_the_way) pack<kNr, Sums::kStep>(b, p.b, {n, n + kNr}, p.N, chunk);
    const Range next{n + kNr, packed ? n + kNr : std::min(n + 2 * kNr, cols.end)};
    Prefetch prefetch(p.b, next, chunk.k, (rows.size() + kMr - 1) / kMr * pieces(chunk));
    for (int64_t m = rows.begin; m < rows.end; m += kMr, slots.kept += kTile) {
      const float* a = block.a + (m - rows.begin) / kMr * panel_size(kMr, chunk.steps);
      const Corner to{
          .p = p, .m = m, .n = n, .rows = std::min(kMr, p.M - m), .cols = std::min(kNr, p.N - n)};
      const auto tile = [&](auto panel) {
        if (to.rows <= kFewRows)
          tile_chunk<Sums, kFewRows>(chunk, a, panel, prefetch, slots, to);
        else
          tile_chunk<Sums, kMr>(chunk, a, panel, prefetch, slots, to);
      };
      if (on_the_way && m == rows.begin)
        pack_on_the_way<Sums>(p, chunk, n, b, tile);
      else
        tile(Packed(b));
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
      const bool above = i % down > 0;
      const PanelsOfB panels = cut.chunks() > 1 || down == 1 ? PanelsOfB::Pass
                               : above                       ? PanelsOfB::Kept
                                                             : PanelsOfB::Keep;
      block_chunk<Sums>(p, cut, block, chunk, block_rows, block_cols, panels);
    }
  }
}

}  // namespace ladder
