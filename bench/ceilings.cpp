#include "bench/ceilings.h"

#include <array>
#include <utility>

#include <hwy/cache_control.h>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace ladder::bench {
namespace {

constexpr int kTries = 25;

/// Thousand millions of `amount` a second, in a call of f.
template <class F>
double rate_of(double amount, F&& f) {
  const int64_t begin = now_ns();
  f();
  return amount / static_cast<double>(now_ns() - begin);
}

/// The best of kTries calls of rate.
template <class F>
double best_of(F&& rate) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) best = std::max(best, rate());
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
  const auto once = [&] {
    on_threads(ctx, [&](int) { benchmark::DoNotOptimize(multiply_add(kRounds)); });
  };
  return best_of([&] { return rate_of(flops, once); });
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
  const auto flops = static_cast<double>(cost::matmul(N, N, N).flops);
  const auto once = [&] {
    cpu_kernels().matmul_forward(box.ctx(), out, inp, w, Tensor{}, kLeaves);
  };
  return best_of([&] { return rate_of(flops, once); });
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

/// The next page is asked for: a processor does not look beyond the one it reads by itself.
void read(const Ctx& ctx, const float* from, int64_t n) {
  constexpr int64_t kStep = kSums * kLanes;
  constexpr int64_t kPage = 4096 / sizeof(float);
  on_threads(ctx, [&](int thread) {
    const Range part = part_of(thread, ctx.threads, n, kStep);
    std::array<Vec, kSums> sums;
    for (Vec& sum : sums) sum = zero();
    for (int64_t i = part.begin; i + kStep <= part.end; i += kStep) {
      const float* at = from + i;
#pragma GCC unroll 16
      for (Vec& sum : sums) {
        __builtin_prefetch(at + kPage, 0, 2);  // into L2
        sum = hn::Add(sum, hn::Load(kVec, std::exchange(at, at + kLanes)));
      }
    }
    benchmark::DoNotOptimize(added(sums));
  });
}

}  // namespace

Memory::Memory(Bench& box, int64_t floats)
    : ctx_(box.ctx()),
      from_(box.alloc(Dtype::F32, {floats})),
      to_(box.alloc(Dtype::F32, {floats})) {}

double Memory::rate(Use use) const {
  const auto bytes = static_cast<double>(from_.bytes());
  const int64_t n = from_.size();
  const auto* from = from_.data<float>();
  auto* to = to_.data<float>();
  switch (use) {
    case Use::CopyPlain: return rate_of(2 * bytes, [&] { copy<false>(ctx_, to, from, n); });
    case Use::CopyPastCaches: return rate_of(2 * bytes, [&] { copy<true>(ctx_, to, from, n); });
    case Use::Read: break;
  }
  return rate_of(bytes, [&] { read(ctx_, from, n); });
}

Ceilings measure_ceilings(int threads) {
  Bench box(threads);
  const Memory memory(box);
  const auto best = [&](Memory::Use use) { return best_of([&] { return memory.rate(use); }); };
  const double plain = best(Memory::Use::CopyPlain);
  return {.fma = fma_rate(box.ctx()),
          .gemm = gemm_rate(box, Dtype::F32),
          .gemm_bf16 = gemm_rate(box, Dtype::BF16),
          .copy_plain = plain,
          .copy = std::max(plain, best(Memory::Use::CopyPastCaches)),
          .read = best(Memory::Use::Read)};
}

double read_rate(int threads, int64_t mebibytes) {
  Bench box(threads);
  const Memory memory(box, mebibytes << 18);
  return best_of([&] { return memory.rate(Memory::Use::Read); });
}

}  // namespace ladder::bench
