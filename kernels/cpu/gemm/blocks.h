// The product, block by block, for any kind of tile. A thread's rectangle of C is cut into
// - blocks, as large as the scratch and L2 allow for panels and waiting sums;
// - slabs of K: a piece of one leaf, or 2^j whole, aligned leaves (depth.h). A and B of a slab are
//   packed into panels, in the order in which registers need them;
// - tiles of sums. They stay in registers through a whole stretch, which is the part of one leaf
//   that lies in the slab.
// Between stretches, sums of a tile wait, one on each level of the tree. If a slab completes a
// level by itself, the next tile uses the memory of that level again. So this memory stays in L1.
#pragma once

#include <span>
#include <unistd.h>
#include <utility>

#include "kernels/cpu/gemm/depth.h"

namespace ladder {

/// The most columns of a block whose panels of B are kept, or whose sums wait. More would not pay.
constexpr int64_t kCols = 128 * kLanes;
/// The most floats of A's panels in a block. They take four fifths of L2 and stay there. Processors
/// with AVX-512 have at least 1 MiB of L2, which two threads of a core may share. Many with AVX2
/// have 512 KiB. What a virtual machine reports may be anything.
inline int64_t most_panels_of_a() {
  static const int64_t floats = [] {
    const int64_t bytes = kLanes == 16 ? 1 << 20 : sysconf(_SC_LEVEL2_CACHE_SIZE);
    return std::clamp<int64_t>(bytes, 1 << 19, 1 << 20) / 5 * 4 /
           static_cast<int64_t>(sizeof(float));
  }();
  return floats;
}

/// The rows and columns of C whose sums are in registers together.
struct TileShape {
  int64_t rows = 0;
  int64_t row_step = 0;  ///< where C ends within a tile, a multiple of this many rows is computed
  int64_t cols = 0;
};

/// A kind of tile. Memory is counted in floats.
struct Tile {
  TileShape shape;
  int64_t panel_a, panel_b;  ///< a tile's rows of A and columns of B, for the longest slab
  int64_t local;             ///< memory that tiles use one after the other
};

/// How many rows and columns of C are computed together, and where their sums and panels lie.
struct Block {
  int64_t rows, cols;
  float *a, *b, *kept, *local;
};

/// Where the sums of one tile of `size` floats wait. Level l is at local + l * size. Levels that
/// outlive a slab are in the block's buffers.
struct WaitingSums {
  int64_t size;
  float* local;
  int local_levels;
  int parking;
  float* kept;  ///< of this tile, from level local_levels on
  int64_t stride;

  float* at(int level) const {
    return level < local_levels ? local + level * size : kept + (level - local_levels) * stride;
  }
};

inline WaitingSums waiting_of(const DepthCut& cut, const Block& block, int64_t size, float* local) {
  return {.size = size,
          .local = local,
          .local_levels = cut.local_levels(),
          .parking = cut.parking(),
          .kept = block.kept,
          .stride = block.rows * block.cols};
}

/// Whether panels of B are not kept. This holds if no block below multiplies the same columns. It
/// also holds if other slabs come in between, because there is no room for the panels of all slabs.
inline bool panels_pass(const DepthCut& cut, int64_t rows, int64_t M) {
  return cut.slabs() > 1 || rows >= M;
}

/// Chooses the block for which the fewest rows and columns are packed; each counts as often as it
/// is packed. With one slab, B is packed once anyway. Then this is the tallest block that caches
/// and scratch allow.
inline Block plan_block(const DepthCut& cut, const Tile& tile, int64_t M, int64_t N,
                        std::span<std::byte> scratch) {
  const TileShape& shape = tile.shape;
  const int64_t floats = static_cast<int64_t>(scratch.size() / sizeof(float)) - tile.local;
  const int64_t kept = cut.levels() - cut.local_levels();
  const auto panels_of_a = [&](int64_t rows) { return rows / shape.rows * tile.panel_a; };
  // Panels of B are either all kept for the block below, or only two exist: one is read, one is
  // packed.
  const auto panels_of_b = [&](int64_t rows, int64_t cols) {
    const int64_t panels = cols / shape.cols;
    return (panels_pass(cut, rows, M) ? std::min<int64_t>(panels, 2) : panels) * tile.panel_b;
  };
  // The most columns that fit if the block has this many rows.
  const auto widest = [&](int64_t rows) {
    const bool pass = panels_pass(cut, rows, M);
    // If panels of B are not kept and no sums wait, all columns fit, and A is packed once for all
    // of them.
    const int64_t most = round_up(pass && kept == 0 ? N : std::min(N, kCols), shape.cols);
    const int64_t free = floats - panels_of_a(rows) - (pass ? 2 * tile.panel_b : 0);
    const int64_t panel = kept * rows * shape.cols + (pass ? 0 : tile.panel_b);
    return panel == 0 ? most : std::min(most, std::max<int64_t>(0, free) / panel * shape.cols);
  };
  const int64_t most_rows = std::max<int64_t>(1, most_panels_of_a() / tile.panel_a) * shape.rows;
  int64_t rows = shape.rows, cols = shape.cols, least = INT64_MAX;
  for (int64_t down = ceil_div(M, most_rows);; ++down) {  // blocks below one another
    const int64_t tall = round_up(ceil_div(M, down), shape.rows), wide = widest(tall);
    if (wide > 0) {
      const int64_t packed = ceil_div(N, wide) * M + down * N;
      if (packed < least) least = packed, rows = tall, cols = wide;
      if (cut.slabs() == 1) break;
    }
    if (tall == shape.rows || down * N >= least) break;
  }
  float* next = reinterpret_cast<float*>(scratch.data());
  const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
  Block block{
      .rows = rows, .cols = cols, .a = nullptr, .b = nullptr, .kept = nullptr, .local = nullptr};
  block.local = take(tile.local);
  block.kept = take(kept * rows * cols);
  block.b = take(panels_of_b(rows, cols));
  block.a = take(panels_of_a(rows));  // comes last, because panels are no whole vectors
  return block;
}

/// What happens to panels of B in a block. Pass: each is packed over the last but one. Keep: all
/// are kept for the block below. Kept: they are still there from the block above.
enum class PanelsOfB : uint8_t { Pass, Keep, Kept };
/// Which place panel i of the block has.
inline int64_t place_of(PanelsOfB panels, int64_t i) {
  return panels == PanelsOfB::Pass ? i % 2 : i;
}

/// Calls f(slab, rows, cols, panels) for each block of the rectangle rows x cols of C and for each
/// slab.
template <class F>
void for_blocks(const DepthCut& cut, const Tile& tile, const Block& block, Range rows, Range cols,
                F&& f) {
  const int64_t down = ceil_div(rows.size(), block.rows);
  const int64_t across = ceil_div(cols.size(), block.cols);
  for (int64_t i = 0; i < down * across; ++i) {
    const Range r = part_of(i % down, down, rows.size(), tile.shape.rows);
    const Range c = part_of(i / down, across, cols.size(), tile.shape.cols);
    const PanelsOfB panels = panels_pass(cut, block.rows, rows.size()) ? PanelsOfB::Pass
                             : i % down > 0                            ? PanelsOfB::Kept
                                                                       : PanelsOfB::Keep;
    for (int64_t which = 0; which < cut.slabs(); ++which)
      f(cut.slab(which), Range{rows.begin + r.begin, rows.begin + r.end},
        Range{cols.begin + c.begin, cols.begin + c.end}, panels);
  }
}

}  // namespace ladder
