// The product tile by tile, whatever the arithmetic of a tile is (class Sums in gemm_tile.h).
// How the product is cut, from the outside in:
//   threads   each takes a rectangle of C (gemm.cpp);
//   blocks    of that rectangle, so large that the sums in the making fit the scratch;
//   chunks    of K: a piece of one leaf, or an aligned run of 2^j whole leaves (gemm_cut.h). A and
//             B of a chunk are packed into panels as the registers want them (pack.h): A before
//             all tiles, a panel of B before the first that reads it, or by those of the panel
//             before on the way;
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
  // Of B all panels are kept for the block below, or they pass: one is read, the next one packed.
  const auto panels_of_b = [&](int64_t cols) {
    return panels<kNr>(cut.chunks() > 1 ? std::min(cols, 2 * kNr) : cols, cut.depth());
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

/// How many pieces of `steps` steps a tile takes on its way through a chunk.
inline int64_t pieces(const Chunk& chunk, int64_t steps) {
  int64_t count = 0;
  for (int s = 0; s < chunk.count; ++s)
    count += (chunk.segments[static_cast<size_t>(s)].steps + steps - 1) / steps;
  return count;
}

/// Whether rows `next` of B can be packed on the way: they are neighbours in memory, fill a panel,
/// and each step is full.
template <class Sums>
bool packs_on_the_way(const Product& p, const Chunk& chunk, Range next) {
  return p.b.stride_k != 1 && next.size() == kNr && chunk.k.size() == chunk.steps * Sums::kStep &&
         chunk.steps > 0 && p.b.dtype == (Sums::kStep == 1 ? Dtype::F32 : Dtype::BF16);
}

/// All tiles that read one panel of B: those at C[rows, n]. They take `pieces` pieces in all.
template <class Sums, class Next>
void column(const Product& p, const Block& block, const Chunk& chunk, Range rows, int64_t n,
            const float* b, Next next, int64_t pieces, Slots& slots) {
  const Factor c{.ptr = p.c, .dtype = p.c_dtype, .stride_i = p.stride_c, .stride_k = 1};
  const bool last = chunk.segments[static_cast<size_t>(chunk.count - 1)].last;
  const Range cols{n, std::min(n + kNr, p.N)};
  Beside<Next> beside{.next = next, .c = Prefetch(c, last ? rows : Range{}, cols, pieces)};
  for (int64_t m = rows.begin; m < rows.end; m += kMr, slots.kept += kTile) {
    const float* a = block.a + (m - rows.begin) / kMr * panel_size(kMr, chunk.steps);
    const Corner to{.p = p, .m = m, .n = n, .rows = std::min(kMr, p.M - m), .cols = cols.size()};
    if (to.rows <= kFewRows)
      tile_chunk<Sums, kFewRows>(chunk, a, b, beside, slots, to);
    else
      tile_chunk<Sums, kMr>(chunk, a, b, beside, slots, to);
  }
}

/// Panels of B in a block: each is packed in the place of the one before the last, or kept for the
/// block below, or still there from the block above.
enum class PanelsOfB : uint8_t { Pass, Keep, Kept };

/// One chunk of K for the block at C[rows, cols]. A is packed; a panel of B is, too, or it is
/// packed on the way, or when its turn comes and its memory has been asked for meanwhile.
template <class Sums>
void block_chunk(const Product& p, const Cut& cut, const Block& block, const Chunk& chunk,
                 Range rows, Range cols, PanelsOfB panels) {
  using T = std::conditional_t<Sums::kStep == 1, float, Bf16>;
  Slots slots{.local = block.local,
              .local_levels = cut.local_levels(),
              .parking = cut.parking(),
              .kept = block.kept,
              .stride = block.rows * block.cols};
  const auto panel = [&](int64_t n) {
    const int64_t i = (n - cols.begin) / kNr;
    return block.b + (panels == PanelsOfB::Pass ? i % 2 : i) * panel_size(kNr, chunk.steps);
  };
  const int64_t tiles = (rows.size() + kMr - 1) / kMr;
  const bool kept = panels == PanelsOfB::Kept;
  bool packed = kept;
  for (int64_t n = cols.begin; n < cols.end; n += kNr) {
    if (!packed) pack<kNr, Sums::kStep>(panel(n), p.b, {n, n + kNr}, p.N, chunk);
    const Range next{n + kNr, kept ? n + kNr : std::min(n + 2 * kNr, cols.end)};
    const bool on_the_way = packs_on_the_way<Sums>(p, chunk, next);
    if (on_the_way) {
      using Next = Packing<Sums::kStep, T>;
      const int64_t times = tiles * pieces(chunk, Next::kPiece);
      const T* from = static_cast<const T*>(p.b.ptr) + chunk.k.begin * p.b.stride_k + next.begin;
      const Next packing(panel(next.begin), from, p.b.stride_k, chunk.steps, times);
      column<Sums>(p, block, chunk, rows, n, panel(n), packing, times, slots);
    } else {
      const int64_t times = tiles * pieces(chunk, Prefetch::kPiece);
      const Prefetch prefetch(p.b, next, chunk.k, times);
      column<Sums>(p, block, chunk, rows, n, panel(n), prefetch, times, slots);
    }
    packed = kept || on_the_way;
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
