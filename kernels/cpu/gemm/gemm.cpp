// The product in FP32, and how threads share a product of any kind.
#include "kernels/cpu/gemm/gemm.h"

#include "kernels/cpu/gemm/bf16.h"
#include "kernels/cpu/gemm/few_rows.h"
#include "kernels/cpu/gemm/rectangle.h"

namespace ladder {
namespace {

/// Two products use each value of A. To broadcast it into a register for both takes one instruction
/// more, and one load less, than to let each multiply-add of AVX-512 read and broadcast it. AMD's
/// processors have loads to spare for every second row, Intel's for none.
#if defined(__znver3__) || defined(__znver4__) || defined(__znver5__)  // znver3: GCC before 12.3
constexpr bool kLoadsToSpare = kLanes == 16;
#else
constexpr bool kLoadsToSpare = false;
#endif

/// Returns p, but the compiler cannot know that. So it reads again what it has read from p.
HWY_INLINE const float* to_read_again(const float* p) {
  asm("" : "+r"(p));
  return p;
}

/// Factors are widened to FP32; multiply-adds are fused.
struct Fp32 {
  static constexpr int64_t kStep = 1;

  template <size_t First, size_t Last, size_t Rows>
  static HWY_INLINE void multiply(RowsOf<First, Last>, Acc<Rows>& acc, const float* a,
                                  const float* b, int64_t steps) {
    for (int64_t k = 0; k < steps; ++k, a += kMr, b += kNr) {
      ask_ahead<kMr>(a);
      if constexpr (!kBInL1) ask_ahead<kNr>(b);
      const Vec b0 = hn::Load(kVec, b);
      const Vec b1 = hn::Load(kVec, b + kLanes);
      const float* again = to_read_again(a);
#pragma GCC unroll 16
      for (size_t i = First; i < Last; ++i) {
        const float* a1 = kLoadsToSpare && i % 2 == 1 ? again : a;
        acc[i][0] = hn::MulAdd(broadcast(a[i]), b0, acc[i][0]);
        acc[i][1] = hn::MulAdd(broadcast(a1[i]), b1, acc[i][1]);
      }
    }
  }
};

/// The size of the largest of `parts` parts of n. It need not be the last one, which may end with
/// less than a step.
int64_t largest_part(int64_t parts, int64_t n, int64_t step) {
  int64_t most = 0;
  for (int64_t i = 0; i < parts; ++i) most = std::max(most, part_of(i, parts, n, step).size());
  return most;
}

TileShape tile_of(const Product& p) { return multiplies_pairs(p) ? tile_of_pairs() : kVectorTile; }

/// Takes the Cs of all products as one tall matrix, whose rows are cut into parts of equal work.
/// Calls f(product, tile, rows) with the rows that part `i` of `parts` has of each product.
template <class F>
void for_rows(std::span<const Product> products, int64_t i, int64_t parts, const F& f) {
  const auto row_tiles = [](const Product& p) { return ceil_div(p.M, tile_of(p).row_step); };
  const auto work = [](const Product& p) { return std::max<int64_t>(1, p.N * p.K); };  // of a tile
  int64_t all = 0, before = 0;
  for (const Product& p : products) all += row_tiles(p) * work(p);
  const Range own = leaf(i, parts, all);
  for (const Product& p : products) {
    const TileShape tile = tile_of(p);
    const auto row_at = [&](int64_t at) {
      return std::min(
          p.M, std::clamp<int64_t>((at - before) / work(p), 0, row_tiles(p)) * tile.row_step);
    };
    const Range rows{row_at(own.begin), row_at(own.end)};
    if (rows.size() > 0) f(p, tile, rows);
    before += row_tiles(p) * work(p);
  }
}

/// How many rows of threads the grid over all Cs has: the number with the least multiplying and
/// packing.
int64_t grid_rows(std::span<const Product> products, int64_t threads) {
  int64_t best = 1;
  int64_t best_cost = INT64_MAX;
  for (int64_t down = 1; down <= threads; ++down) {
    if (threads % down != 0) continue;
    int64_t cost = 0;
    for (int64_t i = 0; i < down; ++i) {
      int64_t own = 0;
      for_rows(products, i, down, [&](const Product& p, const TileShape& tile, Range range) {
        const int64_t rows = range.size(), cols = largest_part(threads / down, p.N, tile.cols);
        // Per k, in multiply-adds: the tiles; 16 to pack a value of A, for which they wait; 12 to
        // pack a value of B, which they do on the way.
        own += (round_up(rows, tile.row_step) * round_up(cols, tile.cols) + 16 * rows + 12 * cols) *
               p.K;
      });
      cost = std::max(cost, own);
    }
    if (cost < best_cost) best = down, best_cost = cost;
  }
  return best;
}

void check_dtypes(const Product& p) {
  const auto is_factor = [](Dtype dtype) { return dtype == Dtype::F32 || is_narrow(dtype); };
  CHECK(is_factor(p.a.dtype) && is_factor(p.b.dtype), "cpu multiplies F32, BF16, F16 and FP8");
  CHECK(is_factor(p.c_dtype) && !is_fp8(p.c_dtype), "products are F32, BF16 or F16 with cpu");
}

}  // namespace

void gemm(const Ctx& ctx, const Product& product) { gemm(ctx, {&product, 1}); }

void gemm(const Ctx& ctx, std::span<const Product> products) {
  constexpr int64_t kWorthThreads = 1 << 16;  // multiply-adds
  int64_t work = 0;
  for (const Product& product : products) {
    check_dtypes(product);
    work += product.M * product.N * product.K;
  }
  const int64_t threads = work < kWorthThreads ? 1 : ctx.threads;
  const int64_t down = grid_rows(products, threads), across = threads / down;
  const auto part = [&](int thread) {
    const auto scratch = scratch_of(ctx, thread);
    for_rows(products, thread % down, down,
             [&](const Product& p, const TileShape& tile, Range rows) {
               const Range cols = part_of(thread / down, across, p.N, tile.cols);
               if (cols.size() == 0) return;
               if (takes_few_rows(p, rows.size()))
                 few_rows(p, rows, cols);
               else if (multiplies_pairs(p))
                 rectangle_of_pairs(p, rows, cols, scratch);
               else
                 rectangle_of<Fp32>(p, rows, cols, scratch);
             });
  };
  if (threads > 1) return on_threads(ctx, part);
  part(0);
  hwy::FlushStream();  // as on_threads does
}

}  // namespace ladder
