// The product tile by tile, whatever the arithmetic of a tile is: a class Sums with
//
//     static constexpr int64_t kStep;   // values of k in a step: a word of a panel holds them
//     template <size_t Rows>
//     static void multiply(Acc<Rows>& acc, const float* a, const float* b, int64_t steps);
//                                       // acc[i][:] += sum over k of a[k][i] b[k][:], k ascending
//
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

#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_cut.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/simd.h"

namespace ladder {

// Registers: kMr x 2 vectors of sums, 2 of B and 1 of A; AVX-512 has 32 of them, AVX2 16.
constexpr int64_t kMr = kLanes == 16 ? 12 : 6;
constexpr int64_t kNr = 2 * kLanes;
constexpr int64_t kTile = kMr * kNr;
/// Largest block of rows: its panels of A (kRows x kDepth) stay in L2.
constexpr int64_t kRows = (kLanes == 16 ? 22 : 48) * kMr;
/// Largest block of columns.
constexpr int64_t kCols = 64 * kNr;
/// A chunk holds at most kDepth leaves, so that many levels at most are its own.
constexpr int kLocalSlots = 10;

/// The sums of a tile, or of its first rows.
template <size_t Rows>
using Acc = std::array<std::array<Vec, 2>, Rows>;
/// Where C ends with so few rows or fewer, no more are computed: numbers of tokens are mostly
/// powers of two, which leave a third of a tile over.
constexpr int64_t kFewRows = kMr / 3;

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

/// f(v, i, col) for each vector v of a tile, the one at row i from column col on.
template <size_t Rows, class F>
HWY_INLINE void for_acc(Acc<Rows>& acc, F&& f) {
#pragma GCC unroll 16
  for (size_t i = 0; i < Rows; ++i) {
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
template <class T, size_t Rows>
HWY_INLINE void write_as(Acc<Rows>& acc, const Corner& to, float* tile) {
  if (to.rows == Rows && to.cols == kNr) {
    for_acc(acc, [&](Vec v, int64_t i, int64_t col) { finish<T>(v, to, i, col, Whole{}); });
    return;
  }
  for_acc(acc, [&](Vec v, int64_t i, int64_t col) { hn::Store(v, kVec, tile + i * kNr + col); });
  for (int64_t i = 0; i < to.rows; ++i)
    for_vectors(0, to.cols, [&](int64_t col, auto io) {
      finish<T>(load(tile + i * kNr + col), to, i, col, io);
    });
}

template <size_t Rows>
HWY_INLINE void write(Acc<Rows>& acc, const Corner& to, float* tile) {
  switch (to.p.c_dtype) {
    case Dtype::BF16: return write_as<Bf16>(acc, to, tile);
    case Dtype::F16: return write_as<F16>(acc, to, tile);
    default: return write_as<float>(acc, to, tile);
  }
}

/// One tile through one segment: from zero or the parking slot to its slot or to C.
template <class Sums, size_t Rows>
HWY_NOINLINE void tile_segment(const Segment& segment, const float* a, const float* b,
                               const Slots& slots, const Corner& to) {
  Acc<Rows> acc;
  if (segment.resumes) {
    const float* own = slots.at(slots.parking);
    for_acc(acc, [&](Vec& v, int64_t i, int64_t col) { v = load(own + i * kNr + col); });
  } else {
    for_acc(acc, [&](Vec& v, int64_t, int64_t) { v = zero(); });
  }
  Sums::multiply(acc, a, b, segment.steps);
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

/// One tile through one chunk.
template <class Sums, size_t Rows>
void tile_chunk(const Chunk& chunk, const float* a, const float* b, const Slots& slots,
                const Corner& to) {
  for (int s = 0; s < chunk.count; ++s) {
    const Segment& segment = chunk.segments[static_cast<size_t>(s)];
    tile_segment<Sums, Rows>(segment, a, b, slots, to);
    a += segment.steps * kMr;
    b += segment.steps * kNr;
  }
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
