// All rungs of the ladder and the product of this project, at three sizes. Before that each rung is
// held against the naive one; a wrong result ends the program with status 1.
//
//   bench_gemm_ladder --benchmark_repetitions=7 --benchmark_out=runs/gemm_ladder.json
//   bench/gemm_ladder/chart.py runs/gemm_ladder.json      writes table and chart
#include "bench/bench.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <span>
#include <thread>

#include "bench/gemm_ladder/ladder.h"

namespace ladder::bench {
namespace {

struct Size {
  int64_t M, N, K;
};
/// A square one; the qkv layer of GPT-2 124M for 4 sequences of 64 tokens; a third of its head for
/// one sequence, where B alone, 48 MiB, is more than most last caches.
constexpr std::array kSizes = {Size{768, 768, 768}, Size{256, 2304, 768}, Size{64, 16384, 768}};
/// Edges everywhere: no tile, block or vector divides it.
constexpr Size kOdd{61, 205, 333};

struct Rung {
  const char* name;
  std::function<void(const Matrices&)> run;
};

/// kernels/cpu/gemm/gemm.cpp, by way of the table.
void project(const Ctx& ctx, const Matrices& x) {
  const auto tensor = [](const float* p, int64_t rows, int64_t cols) {
    // A Tensor does not know const; the operands are only read.
    return Tensor{.ptr = const_cast<float*>(p), .dtype = Dtype::F32, .shape = {rows, cols}};
  };
  ctx.kernels->matmul_forward(ctx, tensor(x.c, x.M, x.N), tensor(x.a, x.M, x.K),
                              tensor(x.b, x.N, x.K), Tensor{}, kLeaves);
}

std::vector<Rung> rungs(const Bench& one, const Bench& all) {
  return {{"naive", naive},
          {"reordered", reordered},
          {"blocked", blocked},
          {"register_tiled", register_tiled},
          {"packed", packed},
          {"ladder_1_thread", [&one](const Matrices& x) { project(one.ctx(), x); }},
          {"threaded", [&all](const Matrices& x) { threaded(x, all.ctx().threads); }},
          {"ladder", [&all](const Matrices& x) { project(all.ctx(), x); }}};
}

/// Memory for one product. The numbers are whole, from -4 to 4, so that every sum is exact in
/// whatever order it is taken, and results can be compared with ==.
struct Operands {
  Size size;
  Floats a, b, c;
  Matrices x;

  explicit Operands(Size s)
      : size(s),
        a(whole_numbers(s.M * s.K)),
        b(whole_numbers(s.N * s.K)),
        c(floats(s.M * s.N)),
        x{.M = s.M, .N = s.N, .K = s.K, .a = a.get(), .b = b.get(), .c = c.get()} {}

  std::span<float> result() const { return {c.get(), static_cast<size_t>(size.M * size.N)}; }

 private:
  static Floats whole_numbers(int64_t n) {
    Floats out = floats(n);
    uint32_t state = 1;
    for (int64_t i = 0; i < n; ++i) {
      state = state * 1664525U + 1013904223U;
      out.get()[i] = static_cast<float>((state >> 24) % 9) - 4;
    }
    return out;
  }
};

std::string name_of(Size s) { return fmt::format("{}x{}x{}", s.M, s.N, s.K); }

bool all_agree(const std::vector<Rung>& rungs, Size size) {
  const Operands wanted(size), operands(size);
  naive(wanted.x);
  bool good = true;
  for (const Rung& rung : rungs) {
    // What nobody writes stays NaN, and NaN is equal to nothing.
    std::ranges::fill(operands.result(), std::numeric_limits<float>::quiet_NaN());
    rung.run(operands.x);
    if (std::ranges::equal(operands.result(), wanted.result())) continue;
    fmt::print(stderr, "{} at {}: another result than naive\n", rung.name, name_of(size));
    good = false;
  }
  return good;
}

void measure(benchmark::State& state, const Rung& rung, Size size) {
  const Operands operands(size);
  while (state.KeepRunning()) {
    rung.run(operands.x);
    benchmark::ClobberMemory();
  }
  count(state, cost::matmul(size.M, size.N, size.K));
}

}  // namespace
}  // namespace ladder::bench

int main(int argc, char** argv) {
  using namespace ladder::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const Bench one(1);
  const Bench all(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  const std::vector<Rung> ladder = rungs(one, all);

  bool good = all_agree(ladder, kOdd);
  for (const Size size : kSizes) good = all_agree(ladder, size) && good;
  if (!good) return 1;

  for (const Size size : kSizes)
    for (const Rung& rung : ladder)
      benchmark::RegisterBenchmark(
          fmt::format("{}/{}", name_of(size), rung.name).c_str(),
          [rung, size](benchmark::State& state) { measure(state, rung, size); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
  benchmark::AddCustomContext("threads", std::to_string(all.ctx().threads));
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
