// Our matrix product beside OpenBLAS and oneDNN at the shapes of GPT-2 124M, all three
// orientations. bench/gemm_ratio.py runs them interleaved and prints the table of ratios.
#include <array>
#include <cblas.h>
#include <dnnl.h>
#include <omp.h>
#include <string_view>

#include <benchmark/benchmark.h>

#include "bench/bench.h"
#include "kernels/cost.h"

namespace ladder::bench {
namespace {

struct Layer {
  const char* name;
  int64_t K, N;
};
constexpr std::array kLayers = {Layer{"qkv", 768, 2304}, Layer{"proj", 768, 768},
                                Layer{"fc", 768, 3072}, Layer{"mlp", 3072, 768},
                                Layer{"head", 768, 50304}};
constexpr std::array kOrientations = {"forward", "backward_input", "backward_weight"};

/// The operands of a linear layer: out (T,N) = inp (T,K) w^T, w (N,K). Any of them is written.
struct Operands {
  int64_t T, N, K;
  Tensor out, inp, w;
};

void ours(const Ctx& ctx, int orientation, const Operands& x) {
  const Kernels& k = *ctx.kernels;
  // Sequences of 64 tokens, so that backward_weight sums several leaves.
  const Shape out{x.T / 64, 64, x.N};
  const Shape inp{x.T / 64, 64, x.K};
  if (orientation == 0) k.matmul_forward(ctx, x.out, x.inp, x.w, Tensor{}, kLeaves);
  if (orientation == 1) k.matmul_backward_input(ctx, x.inp, x.out, x.w, kLeaves);
  if (orientation == 2)
    k.matmul_backward_weight(ctx, x.w, x.out.view(out), x.inp.view(inp), Into::Write);
}

void openblas(int orientation, const Operands& x) {
  const auto T = static_cast<blasint>(x.T);
  const auto N = static_cast<blasint>(x.N);
  const auto K = static_cast<blasint>(x.K);
  float* out = x.out.data<float>();
  float* inp = x.inp.data<float>();
  float* w = x.w.data<float>();
  if (orientation == 0)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, T, N, K, 1, inp, K, w, K, 0, out, N);
  if (orientation == 1)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, T, K, N, 1, out, N, w, K, 0, inp, K);
  if (orientation == 2)
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, N, K, T, 1, out, N, inp, K, 0, w, K);
}

void onednn(int orientation, const Operands& x) {
  const int64_t T = x.T, N = x.N, K = x.K;
  float* out = x.out.data<float>();
  float* inp = x.inp.data<float>();
  float* w = x.w.data<float>();
  if (orientation == 0) dnnl_sgemm('N', 'T', T, N, K, 1, inp, K, w, K, 0, out, N);
  if (orientation == 1) dnnl_sgemm('N', 'N', T, K, N, 1, out, N, w, K, 0, inp, K);
  if (orientation == 2) dnnl_sgemm('T', 'N', N, K, T, 1, out, N, inp, K, 0, w, K);
}

void run(benchmark::State& state, const Layer& layer, int64_t T, int orientation, int threads,
         std::string_view who) {
  Bench bench(threads);
  openblas_set_num_threads(threads);
  omp_set_num_threads(threads);  // oneDNN's
  const Operands x{.T = T,
                   .N = layer.N,
                   .K = layer.K,
                   .out = bench.random({T, layer.N}),
                   .inp = bench.random({T, layer.K}),
                   .w = bench.random({layer.N, layer.K})};
  while (state.KeepRunning()) {
    if (who == "ours") ours(bench.ctx(), orientation, x);
    if (who == "openblas") openblas(orientation, x);
    if (who == "onednn") onednn(orientation, x);
    benchmark::ClobberMemory();
  }
  count(state, cost::matmul(T, layer.N, layer.K));
}

void register_all() {
  for (const int threads : {1, 2})
    for (const int64_t T : {256, 1024})
      for (const Layer& layer : kLayers)
        for (int orientation = 0; orientation < 3; ++orientation)
          for (const char* who : {"ours", "openblas", "onednn"}) {
            const std::string name =
                fmt::format("{}/T{}/{}/threads{}/{}", layer.name, T,
                            kOrientations[static_cast<size_t>(orientation)], threads, who);
            benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
              run(state, layer, T, orientation, threads, who);
            })->UseRealTime();
          }
}

}  // namespace
}  // namespace ladder::bench

int main(int argc, char** argv) {
  ladder::bench::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
