// One tile of the product: its registers, its way through a chunk of K, and to C. The arithmetic is
// that of a class Sums with
//
//     static constexpr int64_t kStep;   // values of k in a step: a word of a panel holds them
//     template <size_t Rows>
//     static void multiply(Acc<Rows>& acc, const float* a, const float* b, int64_t steps);
//                                       // acc[i][:] += sum over k of a[k][i] b[k][:], k ascending
#pragma once

#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_blocks.h"
#include "kernels/cpu/gemm_finish.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/simd.h"

namespace ladder {

// Registers: kMr x 2 vectors of sums, 2 of B and 1 of A; AVX-512 has 32 of them, AVX2 16. A panel
// of A may end within a vector, but only within its first: pack.h overwrites what that stores too
// much.
constexpr int64_t kMr = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 4;
static_assert(kMr <= kLanes || kMr % kLanes == 0);
constexpr int64_t kNr = 2 * kLanes;
constexpr int64_t kTile = kMr * kNr;
/// A chunk holds at most longest_uncut(kDepth) leaves, so that many levels at most are its own.
constexpr int kLocalSlots = 10;

/// The sums of a tile, or of its first rows.
template <size_t Rows>
using Acc = std::array<std::array<Vec, 2>, Rows>;
/// Where C ends with so few rows or fewer, no more are computed: numbers of tokens are mostly
/// powers of two, which leave a third of a tile over.
constexpr int64_t kFewRows = kMr / 3;
constexpr TileShape kVectorTile{.rows = kMr, .few_rows = kFewRows, .cols = kNr};

/// A panel of B that stays in L1 needs no prefetch. Otherwise both panels come from L2 (see
/// kDepth), and lines are asked for so many steps before their products.
constexpr int64_t kAhead = kLanes == 16 ? 16 : 0;

/// Asks for what a panel of W rows holds kAhead steps after `at`.
template <int64_t W>
HWY_INLINE void ask_ahead(const float* at) {
  if constexpr (kAhead > 0)
    for (int64_t word = 0; word < W; word += kLanes)
      __builtin_prefetch(at + kAhead * W + word);  // into L1
}

/// The next panel of B, where its rows are neighbours in memory: it is packed a few steps at a
/// time, while the tiles before it wait for their products anyway.
template <int64_t Step, class T>
class Packing {
 public:
  /// some() is called every so many steps of a tile.
  /// Steps between two calls of some(): with fewer the loops cost more, with more they come in
  /// bursts, which slow the tile down.
  static constexpr int64_t kPiece = kLanes == 16 ? 48 : 128;
  /// @param times how often some() is called
  Packing(float* panel, const T* from, int64_t stride, int64_t steps, int64_t times)
      : panel_(panel),
        from_(from),
        stride_(stride),
        left_(steps),
        each_((steps + times - 1) / times) {}

  HWY_INLINE void some() {
    for (int64_t n = std::min(each_, left_); n > 0; --n) {
      for (int64_t k = 0; k < Step; ++k) {
        const T* later = from_ + (kLater * Step + k) * stride_;
        for (int64_t i = 0; i < kNr; i += kLine) __builtin_prefetch(later + i);
      }
      store(word(from_), panel_);
      store(word(from_ + kLanes), panel_ + kLanes);
      panel_ += kNr;
      from_ += Step * stride_;
      --left_;
    }
  }

 private:
  static constexpr int64_t kLater = 4;  ///< steps from asking for memory to reading it
  static constexpr int64_t kLine = 64 / sizeof(T);
  HWY_INLINE Vec word(const T* at) const {
    const Vec first = load(at);
    if constexpr (Step == 1) return first;
    return join_pairs(kVec, first, load(at + stride_));
  }

  float* panel_;
  const T* from_;
  int64_t stride_, left_, each_;
};

/// What a tile does for later ones, or for its own end, each time Next::kPiece steps are done: a
/// little, as much at once would keep its own loads waiting. Next packs the next panel of B or asks
/// for its memory.
template <class Next>
struct Beside {
  Next& next;
  Prefetch c;  ///< where the tiles that end now are written
  HWY_INLINE void some() {
    next.some();
    if constexpr (kLanes == 16) c.some();  // with AVX2 it costs more than it gains
  }
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

/// Writes a tile to C, by way of `tile` where it hangs over the edge.
template <size_t Rows>
HWY_INLINE void write(Acc<Rows>& acc, const Corner& to, float* tile) {
  // Always inline, or the sums would have to leave their registers.
  with_finish(
      to, [&](const auto& finish) __attribute__((always_inline)) {
        const auto put = [&](auto io) {
          for_acc(acc, [&](Vec v, int64_t i, int64_t col) { finish(v, i, col, io); });
        };
        if (to.rows == Rows && to.cols == kNr)
          return finish.past_caches() ? put(PastCaches{}) : put(Whole{});
        for_acc(acc,
                [&](Vec v, int64_t i, int64_t col) { hn::Store(v, kVec, tile + i * kNr + col); });
        for (int64_t i = 0; i < to.rows; ++i)
          for_vectors(0, to.cols, [&](int64_t col, auto io) {
            finish(load(tile + i * kNr + col), i, col, io);
          });
      });
}

/// One tile through one segment: from zero or the parking slot to its slot or to C.
template <class Sums, size_t Rows, class Next>
HWY_NOINLINE void tile_segment(const Segment& segment, const float* a, const float* b,
                               Beside<Next>& beside, const Slots& slots, const Corner& to) {
  Acc<Rows> acc;
  if (segment.resumes) {
    const float* own = slots.at(slots.parking);
    for_acc(acc, [&](Vec& v, int64_t i, int64_t col) { v = load(own + i * kNr + col); });
  } else {
    for_acc(acc, [&](Vec& v, int64_t, int64_t) { v = zero(); });
  }
  for (int64_t step = 0; step < segment.steps; step += Next::kPiece) {
    const int64_t steps = std::min(Next::kPiece, segment.steps - step);
    beside.some();
    Sums::multiply(acc, a, b, steps);
    a += steps * kMr;
    b += steps * kNr;
  }
  for (uint64_t joins = segment.joins; joins != 0; joins &= joins - 1) {
    const float* left = slots.at(std::countr_zero(joins));
    for_acc(acc,
            [&](Vec& v, int64_t i, int64_t col) { v = hn::Add(load(left + i * kNr + col), v); });
  }
  if (segment.last) return write(acc, to, slots.local);
  float* own = slots.at(segment.slot);
  for_acc(acc, [&](Vec v, int64_t i, int64_t col) { hn::Store(v, kVec, own + i * kNr + col); });
}

/// One tile through one chunk.
template <class Sums, size_t Rows, class Next>
void tile_chunk(const Chunk& chunk, const float* a, const float* b, Beside<Next>& beside,
                const Slots& slots, const Corner& to) {
  for (int s = 0; s < chunk.count; ++s) {
    const Segment& segment = chunk.segments[static_cast<size_t>(s)];
    tile_segment<Sums, Rows>(segment, a, b, beside, slots, to);
    a += segment.steps * kMr;
    b += segment.steps * kNr;
  }
}

}  // namespace ladder
