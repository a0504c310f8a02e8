// How the product is cut, from the outside in:
//   threads   each takes a rectangle of C (grid_for);
//   blocks    of that rectangle, so large that the sums in the making fit the scratch;
//   chunks    of K: a piece of one leaf, or an aligned run of 2^j whole leaves. A and B of a
//             chunk are packed into panels as the registers want them;
//   tiles     of kMr x kNr sums, which stay in registers through a whole segment (the part of
//             one leaf that lies in the chunk).
// Between segments a tile's sums wait in slots, one for each level of the tree. The levels that
// a chunk completes by itself are reused by the next tile and so stay in the L1 cache.
#include "kernels/cpu/gemm.h"

#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/pack.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace ladder {
namespace {

// Registers: kMr x 2 vectors of sums, 2 of B and 1 of A; AVX-512 has 32 of them, AVX2 16.
constexpr int64_t kMr = kLanes == 16 ? 12 : 6;
constexpr int64_t kNr = 2 * kLanes;
constexpr int64_t kTile = kMr * kNr;
/// Longest chunk of K: a panel of B (kDepth x kNr) stays in L1 while A's panels pass.
constexpr int64_t kDepth = 256;
/// Largest block of rows: its panels of A (kRows x kDepth) stay in L2.
constexpr int64_t kRows = 32 * kMr;
/// Largest block of columns.
constexpr int64_t kCols = 64 * kNr;
/// A chunk holds at most kDepth leaves, so that many levels at most are its own.
constexpr int kLocalSlots = 10;

/// The part of a leaf that lies in one chunk.
struct Segment {
  int64_t length;  ///< in k
  int level;       ///< the slot that its sum goes to: the first level that is free
  bool resumes;    ///< the leaf began in an earlier chunk: its sum so far is in that slot
  bool ends;       ///< the leaf ends here: join it with the lower levels
};

struct Chunk {
  Range k;
  int count = 0;
  std::array<Segment, kDepth> segments;
};

/// How K is cut into chunks.
class Cut {
 public:
  Cut(int64_t K, int64_t leaves) : K_(K), leaves_(leaves) {
    const int64_t longest = (K + leaves - 1) / leaves;
    while (run_ < leaves && 2 * run_ * longest <= kDepth && 2 * run_ <= kDepth) run_ *= 2;
    pieces_ = std::max<int64_t>(1, (longest + kDepth - 1) / kDepth);
  }

  int64_t chunks() const { return run_ > 1 ? (leaves_ + run_ - 1) / run_ : leaves_ * pieces_; }

  Chunk chunk(int64_t i) const {
    Chunk chunk;
    if (run_ == 1) {  // piece i % pieces_ of one leaf
      const int64_t which = i / pieces_;
      const Range whole = leaf(which, leaves_, K_);
      const int64_t piece = i % pieces_;
      const Range part = leaf(piece, pieces_, whole.size());
      chunk.k = {whole.begin + part.begin, whole.begin + part.end};
      push(chunk, part.size(), which, piece > 0, piece + 1 == pieces_);
      return chunk;
    }
    const int64_t first = i * run_;
    const int64_t last = std::min(leaves_, first + run_);
    chunk.k = {leaf(first, leaves_, K_).begin, leaf(last - 1, leaves_, K_).end};
    for (int64_t which = first; which < last; ++which)
      push(chunk, leaf(which, leaves_, K_).size(), which, false, true);
    return chunk;
  }

  /// Levels that only live inside a chunk.
  int local_levels() const { return chunks() == 1 ? levels() : std::countr_zero(bits(run_)); }
  int levels() const { return std::bit_width(bits(leaves_)); }

 private:
  static uint64_t bits(int64_t n) { return static_cast<uint64_t>(n); }
  static void push(Chunk& chunk, int64_t length, int64_t which, bool resumes, bool ends) {
    chunk.segments[static_cast<size_t>(chunk.count++)] = {
        .length = length, .level = std::countr_one(bits(which)), .resumes = resumes, .ends = ends};
  }

  int64_t K_, leaves_;
  int64_t run_ = 1;     ///< whole leaves of a chunk: a power of two
  int64_t pieces_ = 1;  ///< pieces of a leaf, where a leaf is longer than a chunk
};

/// Where the sums of one tile wait: level l at local + l * kTile, or, for the levels that
/// outlive a chunk, in the block's buffers.
struct Slots {
  float* local;
  int local_levels;
  float* kept;  ///< of this tile, at level local_levels
  int64_t stride;

  float* at(int level) const {
    return level < local_levels ? local + level * kTile : kept + (level - local_levels) * stride;
  }
};

using Acc = std::array<std::array<Vec, 2>, kMr>;

/// acc[i][:] += sum over k of a[k][i] b[k][:], k ascending.
HWY_INLINE void multiply(Acc& acc, const float* a, const float* b, int64_t length) {
  for (int64_t k = 0; k < length; ++k, a += kMr, b += kNr) {
    const Vec b0 = hn::Load(kVec, b);
    const Vec b1 = hn::Load(kVec, b + kLanes);
#pragma GCC unroll 16
    for (size_t i = 0; i < kMr; ++i) {
      const Vec ai = broadcast(a[i]);
      acc[i][0] = hn::MulAdd(ai, b0, acc[i][0]);
      acc[i][1] = hn::MulAdd(ai, b1, acc[i][1]);
    }
  }
}

/// acc = f(acc, t) for each vector of a tile, t its address in `tile`.
template <class F>
HWY_INLINE void for_acc(Acc& acc, F&& f) {
#pragma GCC unroll 16
  for (size_t i = 0; i < kMr; ++i) {
    f(acc[i][0], static_cast<int64_t>(i) * kNr);
    f(acc[i][1], static_cast<int64_t>(i) * kNr + kLanes);
  }
}

/// One tile through one segment, from slot to slot.
HWY_NOINLINE void tile_segment(const Segment& segment, const float* a, const float* b,
                               const Slots& slots) {
  Acc acc;
  float* own = slots.at(segment.level);
  if (segment.resumes)
    for_acc(acc, [&](Vec& v, int64_t at) { v = hn::Load(kVec, own + at); });
  else
    for_acc(acc, [&](Vec& v, int64_t) { v = zero(); });
  multiply(acc, a, b, segment.length);
  for (int level = 0; segment.ends && level < segment.level; ++level) {
    const float* left = slots.at(level);
    for_acc(acc, [&](Vec& v, int64_t at) { v = hn::Add(hn::Load(kVec, left + at), v); });
  }
  for_acc(acc, [&](Vec& v, int64_t at) { hn::Store(v, kVec, own + at); });
}

/// Joins what is left in the slots and writes the tile whose first element is C[m,n].
void write_tile(const Product& p, const Slots& slots, int64_t m, int64_t n) {
  const auto count = static_cast<uint64_t>(p.leaves);
  const int lowest = std::countr_zero(count);
  for (int64_t i = 0; i < std::min(kMr, p.M - m); ++i) {
    float* c = p.c + (m + i) * p.stride_c;
    for_vectors(n, std::min(n + kNr, p.N), [&](int64_t col, auto io) {
      const int64_t at = i * kNr + col - n;
      Vec sum = load(slots.at(lowest) + at);
      for (int level = lowest + 1; count >> level; ++level)
        if (count >> level & 1) sum = hn::Add(load(slots.at(level) + at), sum);
      if (p.bias) sum = hn::Add(sum, io.load(p.bias + col));
      if (p.into == Into::Add) sum = hn::Add(io.load(c + col), sum);
      io.store(sum, c + col);
    });
  }
}

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
Block plan_block(const Cut& cut, int64_t M, int64_t N, std::span<std::byte> scratch) {
  const int64_t floats = static_cast<int64_t>(scratch.size() / sizeof(float)) - kLocalSlots * kTile;
  const int64_t kept = cut.levels() - cut.local_levels();
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

/// One chunk of K for the block at C[rows, cols].
void block_chunk(const Product& p, const Cut& cut, const Block& block, int64_t index, Range rows,
                 Range cols) {
  const Chunk chunk = cut.chunk(index);
  const int64_t depth = chunk.k.size();
  pack<kMr>(block.a, p.a, rows, p.M, chunk.k);
  pack<kNr>(block.b, p.b, cols, p.N, chunk.k);
  Slots slots{.local = block.local,
              .local_levels = cut.local_levels(),
              .kept = block.kept,
              .stride = block.rows * block.cols};
  const bool last = index + 1 == cut.chunks();
  for (int64_t n = cols.begin; n < cols.end; n += kNr) {
    for (int64_t m = rows.begin; m < rows.end; m += kMr, slots.kept += kTile) {
      const float* a = block.a + (m - rows.begin) / kMr * panel_size(kMr, depth);
      const float* b = block.b + (n - cols.begin) / kNr * panel_size(kNr, depth);
      for (int s = 0; s < chunk.count; ++s) {
        const Segment& segment = chunk.segments[static_cast<size_t>(s)];
        tile_segment(segment, a, b, slots);
        a += segment.length * kMr;
        b += segment.length * kNr;
      }
      if (last) write_tile(p, slots, m, n);
    }
  }
}

/// The rectangle rows x cols of C, block by block.
void rectangle(const Product& p, Range rows, Range cols, std::span<std::byte> scratch) {
  const Cut cut(p.K, p.leaves);
  const Block block = plan_block(cut, rows.size(), cols.size(), scratch);
  const int64_t down = (rows.size() + block.rows - 1) / block.rows;
  const int64_t across = (cols.size() + block.cols - 1) / block.cols;
  for (int64_t i = 0; i < down * across; ++i) {
    const Range r = part_of(i % down, down, rows.size(), kMr);
    const Range c = part_of(i / down, across, cols.size(), kNr);
    for (int64_t chunk = 0; chunk < cut.chunks(); ++chunk)
      block_chunk(p, cut, block, chunk, {rows.begin + r.begin, rows.begin + r.end},
                  {cols.begin + c.begin, cols.begin + c.end});
  }
}

/// How many rows of threads the grid over C has: the cheapest in products and packing.
int64_t grid_rows(const Product& p, int64_t threads) {
  int64_t best = 1;
  int64_t best_cost = INT64_MAX;
  for (int64_t down = 1; down <= threads; ++down) {
    if (threads % down != 0) continue;
    const int64_t rows = part_of(down - 1, down, p.M, kMr).size();
    const int64_t cols = part_of(threads / down - 1, threads / down, p.N, kNr).size();
    const int64_t cost = round_up(rows, kMr) * round_up(cols, kNr) + 8 * (rows + cols);
    if (cost < best_cost) best = down, best_cost = cost;
  }
  return best;
}

}  // namespace

void gemm_serial(const Product& product, std::span<std::byte> scratch) {
  rectangle(product, {0, product.M}, {0, product.N}, scratch);
}

void gemm(const Ctx& ctx, const Product& product) {
  constexpr int64_t kWorthThreads = 1 << 16;
  const bool small = product.M * product.N * product.K < kWorthThreads;
  const int64_t threads = small ? 1 : ctx.threads;
  const int64_t down = grid_rows(product, threads);
  const int64_t across = threads / down;
  const auto part = [&](int thread) {
    const Range rows = part_of(thread % down, down, product.M, kMr);
    const Range cols = part_of(thread / down, across, product.N, kNr);
    if (rows.size() > 0 && cols.size() > 0) rectangle(product, rows, cols, scratch_of(ctx, thread));
  };
  if (threads == 1)
    part(0);
  else
    on_threads(ctx, part);
}

}  // namespace ladder
