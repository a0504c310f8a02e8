// One tile of the product: its way through a slab of K, and to C. The arithmetic is that of a
// class Sums with
//
//     static constexpr int64_t kStep;   // values of k in a step: a word of a panel holds them
//     template <size_t First, size_t Last, size_t Rows>
//     static void multiply(RowsOf<First, Last>, Acc<Rows>& acc, const float* a, const float* b,
//                          int64_t steps);
//                                       // acc[i][:] += sum over k of a[k][i] b[k][:], k ascending,
//                                       // for these rows i
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/cpu/gemm/beside.h"
#include "kernels/cpu/gemm/depth.h"
#include "kernels/cpu/gemm/finish.h"
#include "kernels/cpu/gemm/registers.h"

namespace ladder {

/// The most levels that a slab completes by itself if no leaf is absent: those of a tree over
/// longest_uncut(kDepth) leaves.
constexpr int kLocalLevels = 10;
static_assert(longest_uncut(kDepth) <= int64_t{1} << kLocalLevels);

/// Lines of panels that come from L2 are asked for this many steps before they are multiplied.
constexpr int64_t kStepsAhead = 16;
/// For this many last steps of a stretch, the two halves of a tile take turns. So the sums of one
/// half are joined and stored while the other half multiplies. Storing all of a tile at once would
/// keep the next stretch waiting.
constexpr int64_t kApart = 4;
/// Whether a panel of B stays in L1 while panels of A pass (see kDepth).
constexpr bool kBInL1 = kLanes < 16;

/// Asks for what a panel of W rows holds kStepsAhead steps after `at`.
template <int64_t W>
HWY_INLINE void ask_ahead(const float* at) {
  for (int64_t word = 0; word < W; word += 16)
    __builtin_prefetch(at + kStepsAhead * W + word);  // into L1
}

/// Writes a tile to C. If it hangs over the edge of C, it goes through the buffer `tile`. If C is
/// stored past the caches, it goes through the outbox.
template <size_t Rows>
HWY_INLINE void write(Acc<Rows>& acc, const Corner& to, float* tile, Outbox& outbox) {
  // Always inline: otherwise the sums would have to leave their registers.
  with_finish(
      to, [&](const auto& finish) __attribute__((always_inline)) {
        const auto put = [&](auto io) {
          for_acc(acc, [&](Vec v, int64_t i, int64_t col) { finish(v, i, col, io); });
        };
        if (to.rows == Rows && to.cols == kNr) {
          if (!finish.past_caches()) return put(Whole{});
          if constexpr (kBesideC && requires { outbox.put(acc, finish); })
            return outbox.put(acc, finish);
          return put(PastCaches{});
        }
        for_acc(acc,
                [&](Vec v, int64_t i, int64_t col) { hn::Store(v, kVec, tile + i * kNr + col); });
        for (int64_t i = 0; i < to.rows; ++i)
          for_vectors(0, to.cols, [&](int64_t col, auto io) {
            finish(load(tile + i * kNr + col), i, col, io);
          });
      });
}

/// Asks for the sums that a tile is joined to, and for the place of its own sum. A long stretch has
/// pushed them out of L1, or even out of L2.
template <size_t Rows>
HWY_INLINE void ask_for_waiting(const Stretch& stretch, const WaitingSums& waiting) {
  constexpr int64_t kLong = 128;  // steps
  if (stretch.steps < kLong) return;
  constexpr int64_t kFloats = static_cast<int64_t>(Rows) * kNr;
  if (!stretch.last)
    for (int64_t i = 0; i < kFloats; i += 16) __builtin_prefetch(waiting.at(stretch.level) + i, 1);
  for (uint64_t joins = stretch.joins; joins != 0; joins &= joins - 1)
    for (int64_t i = 0; i < kFloats; i += 16)
      __builtin_prefetch(waiting.at(std::countr_zero(joins)) + i);
}

/// Takes one tile through one stretch. Its sums begin at -0, or where they were parked. They end
/// on their level, or in C.
template <class Sums, size_t Rows, class Next>
HWY_NOINLINE void tile_stretch(const Stretch& stretch, const float* a, const float* b,
                               Beside<Next>& beside, const WaitingSums& waiting, const Corner& to) {
  Acc<Rows> acc;
  if (stretch.resumes) {
    const float* own = waiting.at(waiting.parking);
    for_acc(acc, [&](Vec& v, int64_t i, int64_t col) { v = load(own + i * kNr + col); });
  } else {
    for_acc(acc, [&](Vec& v, int64_t, int64_t) { v = nothing(); });
  }
  const int64_t apart = std::min(kApart, stretch.steps), together = stretch.steps - apart;
  for (int64_t step = 0; step < stretch.steps; step += Next::kPiece) {
    const int64_t steps = std::clamp<int64_t>(together - step, 0, Next::kPiece);
    beside.some();
    if (step + Next::kPiece >= stretch.steps) ask_for_waiting<Rows>(stretch, waiting);
    Sums::multiply(RowsOf<0, Rows>(), acc, a, b, steps);
    a += steps * kMr;
    b += steps * kNr;
  }
  const auto end = [&](auto rows) __attribute__((always_inline)) {
    Sums::multiply(rows, acc, a, b, apart);
    for (uint64_t joins = stretch.joins; joins != 0; joins &= joins - 1) {
      const float* left = waiting.at(std::countr_zero(joins));
      for_acc(rows, acc,
              [&](Vec& v, int64_t i, int64_t col) { v = hn::Add(load(left + i * kNr + col), v); });
    }
    if (stretch.last) return;
    float* own = waiting.at(stretch.level);
    for_acc(rows, acc,
            [&](Vec v, int64_t i, int64_t col) { hn::Store(v, kVec, own + i * kNr + col); });
  };
  end(RowsOf<0, Rows / 2>());
  end(RowsOf<Rows / 2, Rows>());
  if (stretch.last) write(acc, to, waiting.local, beside.outbox);
}

/// Takes one tile through one slab.
template <class Sums, size_t Rows, class Next>
void tile_slab(const Slab& slab, const float* a, const float* b, Beside<Next>& beside,
               const WaitingSums& waiting, const Corner& to) {
  for (int s = 0; s < slab.count; ++s) {
    const Stretch& stretch = slab.stretches[static_cast<size_t>(s)];
    tile_stretch<Sums, Rows>(stretch, a, b, beside, waiting, to);
    a += stretch.steps * kMr;
    b += stretch.steps * kNr;
  }
}

}  // namespace ladder
