// The registers of a tile of vectors.
#pragma once

#include <array>

#include "kernels/cpu/gemm/blocks.h"
#include "kernels/cpu/simd.h"

namespace ladder {

// Registers: kMr x 2 vectors of sums, 2 of B and 1 of A (NEON: kMr of A). A step of a panel of A is
// less than a vector, or whole vectors. If it is less, the vector that pack.h stores reaches into
// the next step, whose own vector is stored later.
constexpr int64_t kMr = kRowsInRegisters;
static_assert(kMr <= kLanes || kMr % kLanes == 0);
constexpr int64_t kNr = 2 * kLanes;
constexpr int64_t kTile = kMr * kNr;

/// The sums of a tile, or of its first rows.
template <size_t Rows>
using Acc = std::array<std::array<Vec, 2>, Rows>;
/// The last tile has this many rows if no more are left. If at most a third of a tile is left, the
/// tile before it gives up a third of its own (16 rows: 8 and 8). Numbers of tokens are powers of
/// two, so one of these two cases is usual. A tile of a third would be slow: it reads as much of B
/// as a whole tile.
constexpr int64_t kFewRows = kMr / 3 * 2;
constexpr TileShape kVectorTile{.rows = kMr, .row_step = kMr / 3, .cols = kNr};

/// How many tiles cover `rows` rows, and which rows tile i has.
constexpr int64_t tiles_of(int64_t rows) { return ceil_div(rows, kMr); }
constexpr Range rows_of_tile(int64_t rows, int64_t i) {
  const int64_t last = tiles_of(rows) - 1, left = rows - last * kMr;
  const int64_t begin_of_last =
      last > 0 && left <= kMr / 3 ? last * kMr - kMr + kFewRows : last * kMr;
  if (i == last) return {begin_of_last, rows};
  return {i * kMr, i + 1 == last ? begin_of_last : (i + 1) * kMr};
}

/// Rows [First, Last) of a tile, given as a type.
template <size_t First, size_t Last>
struct RowsOf {};

/// Calls f(v, i, col) for each vector v of these rows. It is at row i and begins at column col.
template <size_t First, size_t Last, size_t Rows, class F>
HWY_INLINE void for_acc(RowsOf<First, Last>, Acc<Rows>& acc, F&& f) {
#pragma GCC unroll 16
  for (size_t i = First; i < Last; ++i) {
    f(acc[i][0], static_cast<int64_t>(i), 0);
    f(acc[i][1], static_cast<int64_t>(i), kLanes);
  }
}
/// The same for each vector of all rows.
template <size_t Rows, class F>
HWY_INLINE void for_acc(Acc<Rows>& acc, F&& f) {
  for_acc(RowsOf<0, Rows>(), acc, f);
}

}  // namespace ladder
