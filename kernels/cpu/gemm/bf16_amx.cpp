// For CPUs with AMX, whose registers are matrices. TDPBF16PS multiplies 16 rows of A by 16 columns
// of B, 32 values of k at a time, and adds the products to 256 sums in 16 cycles (Intel 64 and
// IA-32 Architectures Software Developer's Manual, volume 2).
#include <array>
#include <atomic>
#include <bit>
#include <immintrin.h>
#include <unistd.h>

#include <sys/syscall.h>

#include "kernels/check.h"
#include "kernels/cpu/gemm/bf16.h"
#include "kernels/cpu/gemm/blocks.h"
#include "kernels/cpu/gemm/finish.h"
#include "kernels/cpu/gemm/pack.h"
#include "kernels/cpu/gemm/prefetch.h"

namespace ladder {
namespace {

constexpr int64_t kSide = 16;             // rows and columns of sums in a register
constexpr int64_t kTileSide = 2 * kSide;  // of a tile: 2 x 2 registers of sums share 2 of A, 2 of B
constexpr int64_t kTile = kTileSide * kTileSide;
constexpr int64_t kStep = 32;          // values of k in a register of A or B
constexpr int64_t kWords = kStep / 2;  // as pairs
constexpr int64_t kStepOfPanel = kTileSide * kWords;
static_assert(kLanes == kSide && kLanes == kWords);
/// The longest slab of K, in steps: 768 values, or 1,024 if K is no longer. L2 delivers panels in
/// time.
constexpr int64_t kLongest = 24;
/// Steps between two requests for memory of the next panel.
constexpr int64_t kRequestEvery = 4;
/// Levels of the tree over the leaves of a slab, if no leaf is absent.
constexpr int kLevels = std::bit_width(uint64_t{longest_uncut(kLongest)});

/// What LDTILECFG reads. Registers 0 to 7 have 16 rows of 64 bytes.
struct alignas(64) RegisterShapes {
  uint8_t palette = 1, first_row = 0;
  std::array<uint8_t, 14> zeros{};
  std::array<uint16_t, 16> bytes_of_a_row{64, 64, 64, 64, 64, 64, 64, 64};
  std::array<uint8_t, 16> rows{16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(RegisterShapes) == 64);
constexpr RegisterShapes kShapes;  // in memory: the compiler does not see that it is read whole

/// Registers 0 to 3 hold the sums of a tile, row by row; 4 and 5 its rows of A; 6 and 7 its columns
/// of B. They are released in the end, because they make switching threads slower.
class Registers {
 public:
  Registers() { _tile_loadconfig(&kShapes); }
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;
  ~Registers() { _tile_release(); }
};

constexpr int64_t kRowOfTile = kTileSide * sizeof(float);  // bytes

HWY_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
HWY_INLINE void load_sums(const float* tile) {
  _tile_loadd(0, tile, kRowOfTile);
  _tile_loadd(1, tile + kSide, kRowOfTile);
  _tile_loadd(2, tile + kSide * kTileSide, kRowOfTile);
  _tile_loadd(3, tile + kSide * kTileSide + kSide, kRowOfTile);
}
HWY_INLINE void store_sums(float* tile) {
  _tile_stored(0, tile, kRowOfTile);
  _tile_stored(1, tile + kSide, kRowOfTile);
  _tile_stored(2, tile + kSide * kTileSide, kRowOfTile);
  _tile_stored(3, tile + kSide * kTileSide + kSide, kRowOfTile);
}

/// Adds the products of some steps to the sums.
HWY_INLINE void multiply(const float* a, const float* b, int64_t steps) {
  for (; steps > 0; --steps, a += kStepOfPanel, b += kStepOfPanel) {
    _tile_loadd(4, a, kWords * sizeof(float));
    _tile_loadd(6, b, kTileSide * sizeof(float));
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kSide, kTileSide * sizeof(float));
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kSide * kWords, kWords * sizeof(float));
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// A panel holds 16 words per step for each of 32 rows of A, row after row; or for each of 32
// columns of B, word after word. Where the last step of a leaf is not full, it is filled with
// zeros.

/// Packs columns [i, i + kTileSide) of B.
void pack_columns(float* out, const Factor& f, int64_t i, int64_t end, Range k, int64_t steps) {
  pack<kTileSide, 2>(out, 0, f, {i, i + kTileSide}, end, k);
  std::fill(out + (k.size() + 1) / 2 * kTileSide, out + steps * kStepOfPanel, 0.0F);
}

/// Packs rows [i, i + kTileSide) of A if k is contiguous along them.
template <class T>
void copy_rows(float* out, const Factor& f, int64_t i, int64_t end, Range k, int64_t steps) {
  for (int64_t row = 0; row < kTileSide; ++row, out += kWords) {
    const T* from = static_cast<const T*>(f.ptr) + std::min(i + row, end - 1) * f.stride_i;
    float* to = out;
    int64_t at = k.begin;
    for (; at + kStep <= k.end; at += kStep, to += kStepOfPanel)
      store(load(reinterpret_cast<const Pair<T>*>(from + at)), to);
    if (to == out + steps * kStepOfPanel) continue;
    std::array<T, kStep> rest{};
    std::copy(from + at, from + k.end, rest.begin());
    store(load(reinterpret_cast<const Pair<T>*>(rest.data())), to);
  }
}

/// Packs rows [i, i + kTileSide) of A.
void pack_rows(float* out, const Factor& f, int64_t i, int64_t end, Range k, int64_t steps) {
  if (f.stride_k == 1) {
    switch (f.dtype) {
      case Dtype::E4M3: return copy_rows<E4m3>(out, f, i, end, k, steps);
      case Dtype::E5M2: return copy_rows<E5m2>(out, f, i, end, k, steps);
      default: return copy_rows<Bf16>(out, f, i, end, k, steps);
    }
  }
  // Packs them as if they were columns, then transposes each step.
  alignas(64) std::array<float, kStepOfPanel> words;
  for (int64_t at = k.begin; at < k.end; at += kStep, out += kStepOfPanel) {
    pack_columns(words.data(), f, i, end, {at, std::min(at + kStep, k.end)}, 1);
    for (int64_t half = 0; half < kTileSide; half += kLanes)
      for (int64_t w = 0; w < kWords; w += 4) {
        const float* word = words.data() + w * kTileSide;
        transpose<float>(out + half * kWords + w, kWords,
                         {word, word + kTileSide, word + 2 * kTileSide, word + 3 * kTileSide},
                         half);
      }
  }
}

/// Calls pack(out, k, steps) for each run of a slab.
template <class F>
void pack_slab(float* out, const Slab& slab, F&& pack) {
  for (const KRun& run : slab.k()) {
    const int64_t steps = ceil_div(run.size(), kStep);
    pack(out, Range{run.begin, run.end}, steps);
    out += steps * kStepOfPanel;
  }
}

/// Leaves of a tile are joined in groups: this takes fewer passes over the sums than one by one. A
/// slab may have fewer leaves than a group. Where leaves may be absent, each is joined by itself.
constexpr int kGroupLevels = 2;
constexpr int kGroup = 1 << kGroupLevels;

/// The sum of N leaves as a tree. Leaves lie kTile apart.
template <int64_t N>
HWY_INLINE Vec joined(const float* leaf) {
  if constexpr (N == 1) {
    return load(leaf);
  } else {
    constexpr int64_t kLeft = static_cast<int64_t>(std::bit_ceil(uint64_t{N}) / 2);
    return hn::Add(joined<kLeft>(leaf), joined<N - kLeft>(leaf + kLeft * kTile));
  }
}

/// The earlier sums that are joined to a group of leaves, lowest level first.
struct Lefts {
  std::array<const float*, 64> at;
  int64_t count = 0;
};

/// Calls put(sum, i, col, io) for the vectors of a tile's first rows and columns.
template <int64_t N, class Wide, class Put>
HWY_INLINE void each_sum_of(const float* leaves, const Lefts& lefts, int64_t rows, int64_t cols,
                            const Put& put) {
  for (int64_t i = 0; i < rows; ++i)
    for_vectors<Wide>(0, cols, [&](int64_t col, auto io) {
      const int64_t at = i * kTileSide + col;
      Vec sum = joined<N>(leaves + at);
      for (int64_t l = 0; l < lefts.count; ++l)
        sum = hn::Add(load(lefts.at[static_cast<size_t>(l)] + at), sum);
      put(sum, i, col, io);
    });
}

/// The same for a group of `count` leaves.
template <class Wide = Whole, class Put>
HWY_INLINE void each_sum(const float* leaves, int count, const Lefts& lefts, int64_t rows,
                         int64_t cols, const Put& put) {
  switch (count) {
    case 1: return each_sum_of<1, Wide>(leaves, lefts, rows, cols, put);
    case 2: return each_sum_of<2, Wide>(leaves, lefts, rows, cols, put);
    case 3: return each_sum_of<3, Wide>(leaves, lefts, rows, cols, put);
    default: return each_sum_of<kGroup, Wide>(leaves, lefts, rows, cols, put);
  }
}

void write(const float* leaves, int count, const Lefts& lefts, const Corner& to) {
  with_finish(to, [&](const auto& finish) {
    const auto each = [&](const auto& put) {
      if (finish.past_caches())
        each_sum<PastCaches>(leaves, count, lefts, to.rows, to.cols, put);
      else
        each_sum(leaves, count, lefts, to.rows, to.cols, put);
    };
    const auto round = [&](Vec sum, int64_t i, int64_t col, auto io) {
      io.store(sum, finish.at(i, col));
    };
    finish.plain() ? each(round) : each(finish);
  });
}

/// Joins a group of `count` leaves to the sums that wait on `level` or above, and sends the result
/// on. `stretch` is the last leaf of the group.
void join_group(const Stretch& stretch, const float* leaves, int count, int level,
                const WaitingSums& waiting, const Corner& to) {
  Lefts lefts;
  for (uint64_t joins = stretch.joins >> level << level; joins != 0; joins &= joins - 1)
    lefts.at[static_cast<size_t>(lefts.count++)] = waiting.at(std::countr_zero(joins));
  if (stretch.last) return write(leaves, count, lefts, to);
  float* own = waiting.at(stretch.level);
  each_sum(leaves, count, lefts, kTileSide, kTileSide,
           [&](Vec sum, int64_t i, int64_t col, auto) { store(sum, own + i * kTileSide + col); });
}

/// Takes one tile through one slab. `leaves` is memory for a group.
void tile_slab(const Slab& slab, const float* a, const float* b, Prefetch& prefetch, float* leaves,
               const WaitingSums& waiting, const Corner& to) {
  // The compiler does not see that registers are loaded from what was packed, or from sums parked
  // before this slab. It does see that they are stored.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const int levels = to.p.present.empty() ? std::min(kGroupLevels, waiting.local_levels) : 0;
  int first = 0;
  for (int s = 0; s < slab.count; ++s) {
    const Stretch& stretch = slab.stretches[static_cast<size_t>(s)];
    stretch.resumes ? load_sums(waiting.at(waiting.parking)) : zero_sums();
    for (int64_t step = 0; step < stretch.steps; step += kRequestEvery) {
      const int64_t steps = std::min(kRequestEvery, stretch.steps - step);
      multiply(a, b, steps);
      prefetch.some();
      a += steps * kStepOfPanel;
      b += steps * kStepOfPanel;
    }
    store_sums(leaves + (s - first) * kTile);
    if (s + 1 < slab.count && s + 1 < first + (1 << levels)) continue;
    join_group(stretch, leaves, s + 1 - first, levels, waiting, to);
    first = s + 1;
  }
}

/// Computes one slab of K for the block at C[rows, cols].
void block_slab(const Product& p, const DepthCut& cut, const Block& block, const Slab& slab,
                Range rows, Range cols, PanelsOfB panels) {
  const int64_t panel = slab.steps * kStepOfPanel;
  for (int64_t m = rows.begin; m < rows.end; m += kTileSide)
    pack_slab(block.a + (m - rows.begin) / kTileSide * panel, slab,
              [&](float* out, Range k, int64_t steps) { pack_rows(out, p.a, m, p.M, k, steps); });
  WaitingSums waiting = waiting_of(cut, block, kTile, block.local + kGroup * kTile);
  const bool kept = panels == PanelsOfB::Kept;
  const int64_t tiles = ceil_div(rows.size(), kTileSide);
  const int64_t requests = tiles * (slab.steps / kRequestEvery);
  for (int64_t n = cols.begin; n < cols.end; n += kTileSide) {
    float* b = block.b + place_of(panels, (n - cols.begin) / kTileSide) * panel;
    if (!kept)
      pack_slab(b, slab, [&](float* out, Range k, int64_t steps) {
        pack_columns(out, p.b, n, p.N, k, steps);
      });
    const Range next{n + kTileSide, kept ? n + kTileSide : std::min(n + 2 * kTileSide, cols.end)};
    Prefetch prefetch(p.b, next, slab.k(), requests);
    for (int64_t m = rows.begin; m < rows.end; m += kTileSide, waiting.kept += kTile) {
      const Corner to{.p = p,
                      .m = m,
                      .n = n,
                      .rows = std::min(kTileSide, rows.end - m),
                      .cols = std::min(kTileSide, cols.end - n)};
      tile_slab(slab, block.a + (m - rows.begin) / kTileSide * panel, b, prefetch, block.local,
                waiting, to);
    }
  }
}

/// Linux keeps these registers, 8 KB per thread, only for programs that ask.
void ask_for_registers() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  CHECK(allowed, "built for AMX, which the operating system does not let this program use");
}

}  // namespace

TileShape tile_of_pairs() { return {.rows = kTileSide, .row_step = kTileSide, .cols = kTileSide}; }

bool multiplies_pairs(const Product& product) {
  if (!is_bf16_exactly(product.a.dtype) || !is_bf16_exactly(product.b.dtype)) return false;
  if (product.K == 0) return false;  // an empty sum is -0, and registers start from +0
  ask_for_registers();
  return true;
}

void rectangle_of_pairs(const Product& p, Range rows, Range cols, std::span<std::byte> scratch) {
  const Registers registers;
  const DepthCut cut(p, kStep, kLongest);
  const Tile tile{.shape = tile_of_pairs(),
                  .panel_a = cut.depth() * kStepOfPanel,
                  .panel_b = cut.depth() * kStepOfPanel,
                  .local = (kGroup + std::max(kLevels, cut.local_levels())) * kTile};
  const Block block = plan_block(cut, tile, rows.size(), cols.size(), scratch);
  for_blocks(cut, tile, block, rows, cols,
             [&](const Slab& slab, Range r, Range c, PanelsOfB panels) {
               block_slab(p, cut, block, slab, r, c, panels);
             });
}

}  // namespace ladder
