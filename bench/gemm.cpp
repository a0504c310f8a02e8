// Our matrix product beside OpenBLAS and oneDNN at the shapes of GPT-2 124M, all three
// orientations, in FP32 and, beside oneDNN alone, in BF16. bench/gemm_ratio.py runs them
// interleaved and prints the table of ratios.
#include <array>
#include <cblas.h>
#include <dnnl.hpp>
#include <omp.h>
#include <span>
#include <string_view>

#include <benchmark/benchmark.h>

#include "bench/bench.h"
#include "kernels/cost.h"

namespace ladder::bench {
namespace {

struct Layer {
  const char* name;
  int64_t K, N;
  /// As the model asks for it (common/model/parts.cpp): what tensor parallelism splits, the rows of
  /// w or its columns, falls into leaves where it is summed over.
  int forward_leaves, backward_leaves;
};
constexpr std::array kLayers = {
    Layer{"qkv", 768, 2304, 1, kLeaves}, Layer{"proj", 768, 768, kLeaves, 1},
    Layer{"fc", 768, 3072, 1, kLeaves}, Layer{"mlp", 3072, 768, kLeaves, 1},
    Layer{"head", 768, 50304, 1, kLeaves}};
constexpr std::array kOrientations = {"forward", "backward_input", "backward_weight"};

/// The operands of a linear layer: out (T,N) = inp (T,K) w^T, w (N,K). Any of them is written.
struct Operands {
  int64_t T, N, K;
  Tensor out, inp, w;
};

void ours(const Ctx& ctx, int orientation, const Layer& layer, const Operands& x) {
  const Kernels& k = *ctx.kernels;
  // Sequences of 64 tokens, so that backward_weight sums several leaves.
  const Shape out{x.T / 64, 64, x.N};
  const Shape inp{x.T / 64, 64, x.K};
  if (orientation == 0) k.matmul_forward(ctx, x.out, x.inp, x.w, Tensor{}, layer.forward_leaves);
  if (orientation == 1) k.matmul_backward_input(ctx, x.inp, x.out, x.w, layer.backward_leaves);
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

/// oneDNN's product of BF16 matrices as they lie in memory, made once and run many times.
class OneDnnBf16 {
 public:
  OneDnnBf16(int orientation, const Operands& x) {
    const Side out{x.out, {x.N, 1}}, out_t{x.out, {1, x.N}};
    const Side inp{x.inp, {x.K, 1}}, w{x.w, {x.K, 1}}, w_t{x.w, {1, x.K}};
    if (orientation == 0) make({x.T, x.N, x.K}, inp, w_t, out);
    if (orientation == 1) make({x.T, x.K, x.N}, out, w, inp);
    if (orientation == 2) make({x.N, x.K, x.T}, out_t, inp, w);
  }
  void run() {
    primitive_.execute(stream_, operands_);
    stream_.wait();
  }

 private:
  struct Side {
    Tensor tensor;
    dnnl::memory::dims strides;
  };
  dnnl::memory memory_of(const Side& side, dnnl::memory::dims dims) {
    const auto type = side.tensor.dtype == Dtype::BF16 ? dnnl::memory::data_type::bf16
                                                       : dnnl::memory::data_type::f32;
    return {{dims, type, side.strides}, engine_, side.tensor.ptr};
  }
  void make(std::array<int64_t, 3> mnk, const Side& a, const Side& b, const Side& c) {
    const auto [M, N, K] = mnk;
    const auto src = memory_of(a, {M, K}), weights = memory_of(b, {K, N}),
               dst = memory_of(c, {M, N});
    primitive_ = dnnl::matmul(
        {dnnl::matmul::desc(src.get_desc(), weights.get_desc(), dst.get_desc()), engine_});
    operands_ = {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> operands_;
};

Tensor as_bf16(Bench& bench, const Tensor& x) {
  const Tensor narrow = bench.alloc(Dtype::BF16, x.shape);
  cpu_kernels().cast(bench.ctx(), narrow, x);
  return narrow;
}

struct Case {
  Layer layer;
  int64_t T;
  int orientation;
  int threads;
  bool bf16;  ///< activations and weights; gradients of weights are FP32
};

void run(benchmark::State& state, const Case& c, std::string_view who) {
  Bench bench(c.threads);
  openblas_set_num_threads(c.threads);
  omp_set_num_threads(c.threads);  // oneDNN's
  const int64_t K = c.layer.K, N = c.layer.N;
  Operands x{.T = c.T,
             .N = N,
             .K = K,
             .out = bench.random({c.T, N}),
             .inp = bench.random({c.T, K}),
             .w = bench.random({N, K})};
  if (c.bf16) {
    x.out = as_bf16(bench, x.out);
    x.inp = as_bf16(bench, x.inp);
    if (c.orientation != 2) x.w = as_bf16(bench, x.w);
  }
  const auto measure = [&](auto&& product) {
    while (state.KeepRunning()) {
      product();
      benchmark::ClobberMemory();
    }
  };
  if (who == "ours") measure([&] { ours(bench.ctx(), c.orientation, c.layer, x); });
  if (who == "openblas") measure([&] { openblas(c.orientation, x); });
  if (who == "onednn" && !c.bf16) measure([&] { onednn(c.orientation, x); });
  if (who == "onednn" && c.bf16) {
    OneDnnBf16 product(c.orientation, x);
    measure([&] { product.run(); });
  }
  count(state, cost::matmul(c.T, N, K));
}

void register_case(const Case& c) {
  static constexpr std::array kPeers = {"ours", "onednn", "openblas"};
  const auto orientation = kOrientations[static_cast<size_t>(c.orientation)];
  for (const char* who : std::span(kPeers).first(c.bf16 ? 2 : 3)) {
    const std::string name = fmt::format("{}{}/T{}/{}/threads{}/{}", c.bf16 ? "bf16/" : "",
                                         c.layer.name, c.T, orientation, c.threads, who);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      run(state, c, who);
    })->UseRealTime();
  }
}

void register_all() {
  for (const bool bf16 : {false, true})
    for (const int threads : {1, 2})
      for (const int64_t T : {256, 1024})
        for (const Layer& layer : kLayers)
          for (int orientation = 0; orientation < 3; ++orientation)
            register_case({layer, T, orientation, threads, bf16});
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
