// A block of the product (blocks.h) in vectors. The arithmetic of a tile is that of a class Sums
// (tile.h). A of a slab is packed before all tiles. A panel of B is packed before the first tile
// that reads it, or by the tiles of the panel before, on their way.
#pragma once

#include <type_traits>

#include "kernels/cpu/gemm/blocks.h"
#include "kernels/cpu/gemm/pack.h"
#include "kernels/cpu/gemm/tile.h"

namespace ladder {

/// How many pieces of `steps` steps a tile goes through in a slab.
inline int64_t pieces(const Slab& slab, int64_t steps) {
  int64_t count = 0;
  for (int s = 0; s < slab.count; ++s)
    count += ceil_div(slab.stretches[static_cast<size_t>(s)].steps, steps);
  return count;
}

/// Whether rows `next` of B can be packed on the way. They must fill a panel, and each step must be
/// full. Transposing takes more registers than the sums leave with AVX2.
template <class Sums>
bool packs_on_the_way(const Product& p, const Slab& slab, Range next) {
  const bool whole = next.size() == kNr && slab.values == slab.steps * Sums::kStep;
  const bool transposes = kLanes == 16 && slab.steps % kLanes == 0 && slab.run_count == 1;
  return whole && slab.steps > 0 && (p.b.stride_k != 1 || transposes) &&
         p.b.dtype == (Sums::kStep == 1 ? Dtype::F32 : Dtype::BF16);
}

/// Computes all tiles that read one panel of B: those at C[rows, n]. They go through `pieces`
/// pieces in all.
template <class Sums, class Next>
void column(const Product& p, const Block& block, const Slab& slab, Range rows, int64_t n,
            const float* b, Next next, int64_t pieces, WaitingSums& waiting, Outbox& outbox) {
  const Factor c{.ptr = p.c, .dtype = p.c_dtype, .stride_i = p.stride_c, .stride_k = 1};
  const bool last = slab.stretches[static_cast<size_t>(slab.count - 1)].last;
  const Range written = last && !goes_past_caches(p) ? rows : Range{};
  const KRun cols{n, std::min(n + kNr, p.N)};
  Beside<Next> beside{
      .next = next, .c = Prefetch(c, written, {&cols, 1}, pieces), .outbox = outbox};
  for (int64_t i = 0; i < tiles_of(rows.size()); ++i, waiting.kept += kTile) {
    const float* a = block.a + i * panel_size(kMr, slab.steps);
    const Range tile = rows_of_tile(rows.size(), i);
    const Corner to{
        .p = p, .m = rows.begin + tile.begin, .n = n, .rows = tile.size(), .cols = cols.size()};
    if (to.rows <= kFewRows)
      tile_slab<Sums, kFewRows>(slab, a, b, beside, waiting, to);
    else
      tile_slab<Sums, kMr>(slab, a, b, beside, waiting, to);
  }
}

/// Packs A for the block at C[rows, ...], one panel for each tile. All tiles but the last begin kMr
/// rows apart (rows_of_tile). The last is packed by itself.
template <class Sums>
void pack_a(const Product& p, const Block& block, const Slab& slab, Range rows) {
  const int64_t last = tiles_of(rows.size()) - 1;
  const int64_t begin = rows.begin + rows_of_tile(rows.size(), last).begin;
  pack<kMr, Sums::kStep>(block.a, p.a, {rows.begin, begin}, p.M, slab);
  pack<kMr, Sums::kStep>(block.a + last * panel_size(kMr, slab.steps), p.a, {begin, rows.end}, p.M,
                         slab);
}

/// Computes one slab of K for the block at C[rows, cols]; A is packed already. A panel of B is
/// packed on the way, by the tiles of the panel before. Where that is not possible, those tiles
/// only ask for its memory, and the panel is packed when its turn comes.
template <class Sums>
void block_slab(const Product& p, const DepthCut& cut, const Block& block, const Slab& slab,
                Range rows, Range cols, PanelsOfB panels, Outbox& outbox) {
  using T = std::conditional_t<Sums::kStep == 1, float, Bf16>;
  WaitingSums waiting = waiting_of(cut, block, kTile, block.local);
  const auto panel = [&](int64_t n) {
    return block.b + place_of(panels, (n - cols.begin) / kNr) * panel_size(kNr, slab.steps);
  };
  const auto at = [&](int64_t n) { return static_cast<const T*>(p.b.ptr) + n * p.b.stride_i; };
  const int64_t tiles = tiles_of(rows.size());
  const bool kept = panels == PanelsOfB::Kept;
  bool packed = kept;
  for (int64_t n = cols.begin; n < cols.end; n += kNr) {
    if (!packed) pack<kNr, Sums::kStep>(panel(n), p.b, {n, n + kNr}, p.N, slab);
    const Range next{n + kNr, kept ? n + kNr : std::min(n + 2 * kNr, cols.end)};
    const bool on_the_way = packs_on_the_way<Sums>(p, slab, next);
    const auto all_tiles = [&](auto next_panel, int64_t times) {
      column<Sums>(p, block, slab, rows, n, panel(n), next_panel, times, waiting, outbox);
    };
    const auto pack_on_the_way = [&]<class Next>(std::type_identity<Next>, int64_t stride) {
      const int64_t times = tiles * pieces(slab, Next::kPiece);
      all_tiles(Next(panel(next.begin), at(next.begin), stride, slab.k(), times), times);
    };
    if (!on_the_way) {
      const int64_t times = tiles * pieces(slab, Prefetch::kPiece);
      all_tiles(Prefetch(p.b, next, slab.k(), times), times);
    } else if (p.b.stride_k == 1) {
      pack_on_the_way(std::type_identity<Transposing<Sums::kStep, T>>{}, p.b.stride_i);
    } else {
      pack_on_the_way(std::type_identity<Packing<Sums::kStep, T>>{}, p.b.stride_k);
    }
    packed = kept || on_the_way;
  }
}

/// Computes the rectangle rows x cols of C, block by block.
template <class Sums>
void rectangle_of(const Product& p, Range rows, Range cols, std::span<std::byte> scratch) {
  const DepthCut cut(p, Sums::kStep, kDepth);
  const int64_t local = std::max(kLocalLevels, cut.local_levels()) * kTile;
  const Tile tile{.shape = kVectorTile,
                  .panel_a = panel_size(kMr, cut.depth()),
                  .panel_b = panel_size(kNr, cut.depth()),
                  .local = local + kTile};
  const Block block = plan_block(cut, tile, rows.size(), cols.size(), scratch);
  Outbox outbox(block.local + local);
  for_blocks(cut, tile, block, rows, cols,
             [&](const Slab& slab, Range r, Range c, PanelsOfB panels) {
               pack_a<Sums>(p, block, slab, r);
               block_slab<Sums>(p, cut, block, slab, r, c, panels, outbox);
             });
  outbox.rest();
}

}  // namespace ladder
