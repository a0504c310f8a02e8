// The product in FP32, and how threads share a product of any kind.
#include "kernels/cpu/gemm/gemm.h"

#include "kernels/cpu/gemm/bf16.h"
#include "kernels/cpu/gemm/rectangle.h"

namespace ladder {
namespace {

/// Two products read a value of A. Broadcast into a register for both, it takes an instruction more
/// than where each multiply-add of AVX-512 reads and broadcasts it by itself, but a load less.
/// Processors of AMD have loads to spare for one row in two, those of Intel for none.
#if defined(__znver3__) || defined(__znver4__) || defined(__znver5__)  // znver3: GCC before 12.3
constexpr bool kLoadsToSpare = kLanes == 16;
#else
constexpr bool kLoadsToSpare = false;
#endif

/// The same place, but the compiler cannot know: what was read from p is read again from there.
HWY_INLINE const float* to_read_again(const float* p) {
  asm("" : "+r"(p));
  return p;
}

/// Factors widened to FP32, fused multiply-adds.
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

/// The most of n that one of `parts` parts has; it need not be the last one, which n may cut off.
int64_t largest_part(int64_t parts, int64_t n, int64_t step) {
  int64_t most = 0;
  for (int64_t i = 0; i < parts; ++i) most = std::max(most, part_of(i, parts, n, step).size());
  return most;
}

/// How many rows of threads the grid over C has: the cheapest in products and packing.
int64_t grid_rows(const Product& p, const TileShape& tile, int64_t threads) {
  int64_t best = 1;
  int64_t best_cost = INT64_MAX;
  for (int64_t down = 1; down <= threads; ++down) {
    if (threads % down != 0) continue;
    const int64_t rows = largest_part(down, p.M, tile.row_step);
    const int64_t cols = largest_part(threads / down, p.N, tile.cols);
    // For each k, in multiply-adds: what packing a value of A takes, which comes first, and one of
    // B, which is packed while tiles wait.
    const int64_t cost =
        round_up(rows, tile.row_step) * round_up(cols, tile.cols) + 16 * rows + 12 * cols;
    if (cost < best_cost) best = down, best_cost = cost;
  }
  return best;
}

void check_dtypes(const Product& p) {
  const auto is_factor = [](Dtype dtype) { return dtype == Dtype::F32 || is_narrow(dtype); };
  CHECK(is_factor(p.a.dtype) && is_factor(p.b.dtype), "cpu multiplies F32, BF16, F16 and FP8");
  CHECK(is_factor(p.c_dtype) && !is_fp8(p.c_dtype), "products are F32, BF16 or F16 with cpu");
}

/// What one of `threads` threads computes of a product.
void part_of_product(const Ctx& ctx, const Product& product, int64_t threads, int thread) {
  const bool pairs = multiplies_pairs(product);
  const TileShape tile = pairs ? tile_of_pairs() : kVectorTile;
  const int64_t down = grid_rows(product, tile, threads);
  const int64_t across = threads / down;
  const Range rows = part_of(thread % down, down, product.M, tile.row_step);
  const Range cols = part_of(thread / down, across, product.N, tile.cols);
  if (rows.size() == 0 || cols.size() == 0) return;
  if (pairs)
    rectangle_of_pairs(product, rows, cols, scratch_of(ctx, thread));
  else
    rectangle_of<Fp32>(product, rows, cols, scratch_of(ctx, thread));
}

}  // namespace

void gemm(const Ctx& ctx, const Product& product) { gemm(ctx, {&product, 1}); }

void gemm(const Ctx& ctx, std::span<const Product> products) {
  constexpr int64_t kWorthThreads = 1 << 16;
  int64_t work = 0;
  for (const Product& product : products) {
    check_dtypes(product);
    work += product.M * product.N * product.K;
  }
  const int64_t threads = work < kWorthThreads ? 1 : ctx.threads;
  const auto parts = [&](int thread) {
    for (const Product& product : products) part_of_product(ctx, product, threads, thread);
  };
  if (threads > 1) return on_threads(ctx, parts);
  parts(0);
  hwy::FlushStream();  // as on_threads does
}

}  // namespace ladder
