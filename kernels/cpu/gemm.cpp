// How the product is cut, from the outside in:
//   threads   each takes a rectangle of C (grid_rows);
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
constexpr int64_t kRows = 48 * kMr;
/// Largest block of columns.
constexpr int64_t kCols = 64 * kNr;
/// A chunk holds at most kDepth leaves, so that many levels at most are its own.
constexpr int kLocalSlots = 10;

/// The part of a leaf that lies in one chunk.
struct Segment {
  int64_t length;  ///< in k
  uint64_t joins;  ///< bit l: the sum on level l of the tree is joined to this one, lowest first
  int slot;        ///< where the sum goes: its level, or Cut::parking() if the leaf goes on
  bool resumes;    ///< the leaf began in an earlier chunk: its sum so far is parked
  bool last;       ///< nothing follows: the sum goes to C
};

struct Chunk {
  Range k;
  int count = 0;
  std::array<Segment, kDepth> segments;
};

/// How K is cut into chunks, and in which slots the sums wait.
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
      const Range whole = leaf(i / pieces_, leaves_, K_);
      const Range part = leaf(i % pieces_, pieces_, whole.size());
      chunk.k = {whole.begin + part.begin, whole.begin + part.end};
      push(chunk, i / pieces_, i % pieces_, part.size());
      return chunk;
    }
    const int64_t first = i * run_;
    const int64_t end = std::min(leaves_, first + run_);
    chunk.k = {leaf(first, leaves_, K_).begin, leaf(end - 1, leaves_, K_).end};
    for (int64_t which = first; which < end; ++which)
      push(chunk, which, 0, leaf(which, leaves_, K_).size());
    return chunk;
  }

  /// Levels whose sums never outlive a chunk.
  int local_levels() const { return chunks() == 1 ? parking() : std::countr_zero(bits(run_)); }
  /// The slot after those of the levels: for a leaf that goes on in the next chunk.
  int parking() const { return std::bit_width(bits(leaves_ - 1)); }
  int slots() const { return parking() + (pieces_ > 1 ? 1 : 0); }

 private:
  static uint64_t bits(int64_t n) { return static_cast<uint64_t>(n); }

  void push(Chunk& chunk, int64_t which, int64_t piece, int64_t length) const {
    const bool ends = piece + 1 == pieces_;
    const bool last = ends && which + 1 == leaves_;
    // As a binary counter: leaf `which` completes the levels of its trailing ones. The last leaf
    // is joined with all that is left: the ones of its index.
    const int level = std::countr_one(bits(which));
    const uint64_t completed = (uint64_t{1} << level) - 1;
    chunk.segments[static_cast<size_t>(chunk.count++)] = {
        .length = length,
        .joins = last ? bits(which) : (ends ? completed : 0),
        .slot = ends ? level : parking(),
        .resumes = piece > 0,
        .last = last};
  }

  int64_t K_, leaves_;
  int64_t run_ = 1;     ///< whole leaves of a chunk: a power of two
  int64_t pieces_ = 1;  ///< pieces of a leaf, where a leaf is longer than a chunk
};

/// Where the sums of one tile wait: slot s at local + s * kTile, or, where they outlive a chunk,
/// in the block's buffers.
struct Slots {
  float* local;
  int local_levels;
  int parking;
  float* kept;  ///< of this tile, slot local_levels
  int64_t stride;

  float* at(int slot) const {
    return slot < local_levels ? local + slot * kTile : kept + (slot - local_levels) * stride;
  }
};

/// Where a finished tile goes: its corner of C, and how much of it lies inside.
struct Corner {
  const Product& p;
  int64_t m, n;
  int64_t rows, cols;
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

/// f(v, i, col) for each vector v of a tile, the one at row i from column col on.
template <class F>
HWY_INLINE void for_acc(Acc& acc, F&& f) {
#pragma GCC unroll 16
  for (size_t i = 0; i < kMr; ++i) {
    f(acc[i][0], static_cast<int64_t>(i), 0);
    f(acc[i][1], static_cast<int64_t>(i), kLanes);
  }
}

/// The vector at row i, column col of a tile goes to C.
template <class T, class Io>
HWY_INLINE void finish(Vec sum, const Corner& to, int64_t i, int64_t col, Io io) {
  const Product& p = to.p;
  T* c = static_cast<T*>(p.c) + (to.m + i) * p.stride_c + to.n + col;
  if (p.factor != 1) sum = hn::Mul(sum, broadcast(p.factor));
  if (p.bias) sum = hn::Add(sum, io.load(static_cast<const T*>(p.bias) + to.n + col));
  if (p.into == Into::Add) sum = hn::Add(io.load(c), sum);
  io.store(sum, c);
}

/// Writes a tile to C, by way of `tile` where it hangs over the edge.
template <class T>
HWY_INLINE void write_as(Acc& acc, const Corner& to, float* tile) {
  if (to.rows == kMr && to.cols == kNr) {
    for_acc(acc, [&](Vec v, int64_t i, int64_t col) { finish<T>(v, to, i, col, Whole{}); });
    return;
  }
  for_acc(acc, [&](Vec v, int64_t i, int64_t col) { hn::Store(v, kVec, tile + i * kNr + col); });
  for (int64_t i = 0; i < to.rows; ++i)
    for_vectors(0, to.cols, [&](int64_t col, auto io) {
      finish<T>(load(tile + i * kNr + col), to, i, col, io);
    });
}

HWY_INLINE void write(Acc& acc, const Corner& to, float* tile) {
  switch (to.p.c_dtype) {
    case Dtype::BF16: return write_as<Bf16>(acc, to, tile);
    case Dtype::F16: return write_as<F16>(acc, to, tile);
    default: return write_as<float>(acc, to, tile);
  }
}

/// One tile through one segment: from zero or the parking slot to its slot or to C.
HWY_NOINLINE void tile_segment(const Segment& segment, const float* a, const float* b,
                               const Slots& slots, const Corner& to) {
  Acc acc;
  if (segment.resumes) {
    const float* own = slots.at(slots.parking);
    for_acc(acc, [&](Vec& v, int64_t i, int64_t col) { v = load(own + i * kNr + col); });
  } else {
    for_acc(acc, [&](Vec& v, int64_t, int64_t) { v = zero(); });
  }
  multiply(acc, a, b, segment.length);
  for (uint64_t joins = segment.joins; joins != 0; joins &= joins - 1) {
    const float* left = slots.at(std::countr_zero(joins));
    for_acc(acc,
            [&](Vec& v, int64_t i, int64_t col) { v = hn::Add(load(left + i * kNr + col), v); });
  }
  if (segment.last) return write(acc, to, slots.local);
  float* own = slots.at(segment.slot);
  for_acc(acc, [&](Vec v, int64_t i, int64_t col) { hn::Store(v, kVec, own + i * kNr + col); });
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

/// One chunk of K for the block at C[rows, cols].
void block_chunk(const Product& p, const Cut& cut, const Block& block, const Chunk& chunk,
                 Range rows, Range cols) {
  const int64_t depth = chunk.k.size();
  Slots slots{.local = block.local,
              .local_levels = cut.local_levels(),
              .parking = cut.parking(),
              .kept = block.kept,
              .stride = block.rows * block.cols};
  for (int64_t n = cols.begin; n < cols.end; n += kNr) {
    const float* b_panel = block.b + (n - cols.begin) / kNr * panel_size(kNr, depth);
    for (int64_t m = rows.begin; m < rows.end; m += kMr, slots.kept += kTile) {
      const float* a = block.a + (m - rows.begin) / kMr * panel_size(kMr, depth);
      const float* b = b_panel;
      const Corner to{
          .p = p, .m = m, .n = n, .rows = std::min(kMr, p.M - m), .cols = std::min(kNr, p.N - n)};
      for (int s = 0; s < chunk.count; ++s) {
        const Segment& segment = chunk.segments[static_cast<size_t>(s)];
        tile_segment(segment, a, b, slots, to);
        a += segment.length * kMr;
        b += segment.length * kNr;
      }
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
    const Range block_rows{rows.begin + r.begin, rows.begin + r.end};
    const Range block_cols{cols.begin + c.begin, cols.begin + c.end};
    for (int64_t which = 0; which < cut.chunks(); ++which) {
      const Chunk chunk = cut.chunk(which);
      pack<kMr>(block.a, p.a, block_rows, p.M, chunk.k);
      // B of the only chunk is still there from the block above.
      if (cut.chunks() > 1 || i % down == 0) pack<kNr>(block.b, p.b, block_cols, p.N, chunk.k);
      block_chunk(p, cut, block, chunk, block_rows, block_cols);
    }
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
