#include "bench/ceilings.h"

#include <array>

#include <hwy/cache_control.h>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace ladder::bench {
namespace {

constexpr int kTries = 25;

/// Thousand millions of `amount` a second, in the best of kTries calls of f.
template <class F>
double best_rate(double amount, F&& f) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const int64_t begin = now_ns();
    f();
    best = std::max(best, amount / static_cast<double>(now_ns() - begin));
  }
  return best;
}

/// As many sums as it takes to keep all multipliers busy (two a cycle, four or five cycles each)
/// and as fit into the 16 registers of AVX2 beside both factors.
constexpr size_t kSums = 12;

float added(const std::array<Vec, kSums>& sums) {
  Vec all = zero();
  for (const Vec& sum : sums) all = hn::Add(all, sum);
  return hn::GetLane(all);
}

HWY_NOINLINE float multiply_add(int64_t rounds) {
  // x <- 0.999 x + 0.001 stays near 1. Volatile hides the factors from the optimiser. (With
  // DoNotOptimize GCC 12 may leave them out and read what lay there before: numbers too small to be
  // normal, perhaps, which some processors take a hundred cycles for.)
  const volatile float factor = 0.999F;
  const volatile float term = 0.001F;
  const Vec a = broadcast(factor);
  const Vec b = broadcast(term);
  std::array<Vec, kSums> sums;
  for (Vec& sum : sums) sum = b;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (Vec& sum : sums) sum = hn::MulAdd(a, sum, b);
  }
  return added(sums);
}

double fma_rate(const Ctx& ctx) {
  constexpr int64_t kRounds = 4'000'000;  // some ten milliseconds
  const auto flops = static_cast<double>(kRounds) * kSums * 2 * kLanes * ctx.threads;
  return best_rate(flops, [&] {
    on_threads(ctx, [&](int) { benchmark::DoNotOptimize(multiply_add(kRounds)); });
  });
}

/// A square product that stays in the caches, with whole tiles at every width of vector.
double gemm_rate(Bench& box, Dtype dtype) {
  constexpr int64_t N = 1536;
  const Shape square{N, N};
  const auto matrix = [&] {
    const Tensor x = box.alloc(dtype, square);
    cpu_kernels().cast(box.ctx(), x, box.random(square));
    return x;
  };
  const Tensor out = matrix(), inp = matrix(), w = matrix();
  return best_rate(static_cast<double>(cost::matmul(N, N, N).flops), [&] {
    cpu_kernels().matmul_forward(box.ctx(), out, inp, w, Tensor{}, kLeaves);
  });
}

template <bool kPastCache>
void copy(const Ctx& ctx, float* to, const float* from, int64_t n) {
  on_threads(ctx, [&](int thread) {
    const Range part = part_of(thread, ctx.threads, n, 4 * kLanes);
    for (int64_t i = part.begin; i < part.end; i += 4 * kLanes)
      for (int64_t j = i; j < i + 4 * kLanes; j += kLanes) {
        const Vec v = hn::Load(kVec, from + j);
        if constexpr (kPastCache)
          hn::Stream(v, kVec, to + j);
        else
          hn::Store(v, kVec, to + j);
      }
    hwy::FlushStream();
  });
}

/// Reads n floats, asking for each line some 4 KiB before.
void read(const Ctx& ctx, const float* from, int64_t n) {
  constexpr int64_t kStep = kSums * kLanes;
  constexpr int64_t kLater = 1024;
  on_threads(ctx, [&](int thread) {
    const Range part = part_of(thread, ctx.threads, n, kStep);
    std::array<Vec, kSums> sums;
    for (Vec& sum : sums) sum = zero();
    for (int64_t i = part.begin; i + kStep <= part.end; i += kStep) {
#pragma GCC unroll 16
      for (int64_t j = 0; j < kStep; j += kLanes) {
        __builtin_prefetch(from + i + j + kLater);
        Vec& sum = sums[static_cast<size_t>(j / kLanes)];
        sum = hn::Add(sum, hn::Load(kVec, from + i + j));
      }
    }
    benchmark::DoNotOptimize(added(sums));
  });
}

}  // namespace

Ceilings measure_ceilings(int threads) {
  constexpr int64_t kFloats = 32 << 20;  // 128 MiB an array
  Bench box(threads);
  const Ctx& ctx = box.ctx();
  Ceilings c{.fma = fma_rate(ctx),
             .gemm = gemm_rate(box, Dtype::F32),
             .gemm_bf16 = gemm_rate(box, Dtype::BF16),
             .copy_plain = 0,
             .copy = 0,
             .read = 0};
  const Tensor from = box.alloc(Dtype::F32, {kFloats}), to = box.alloc(Dtype::F32, {kFloats});
  const auto rate = [&](auto&& copy) {
    return best_rate(2.0 * static_cast<double>(from.bytes()),
                     [&] { copy(ctx, to.data<float>(), from.data<float>(), kFloats); });
  };
  c.copy_plain = rate(copy<false>);
  c.copy = std::max(c.copy_plain, rate(copy<true>));
  c.read =
      best_rate(static_cast<double>(from.bytes()), [&] { read(ctx, from.data<float>(), kFloats); });
  return c;
}

}  // namespace ladder::bench
