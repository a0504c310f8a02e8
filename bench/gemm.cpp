// Our matrix product beside OpenBLAS and oneDNN at the shapes of GPT-2 124M, all three
// orientations, in FP32 and, beside oneDNN alone, in BF16. One repetition of a benchmark runs them
// in turn on the same operands, so that all meet the same neighbors on a machine that has some.
// bench/gemm_ratio.py prints the table of ratios.
#include <array>
#include <cblas.h>
#include <chrono>
#include <dnnl.hpp>
#include <omp.h>
#include <optional>
#include <thread>
#include <unordered_map>

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
  bool operator==(const Layer&) const = default;
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
  bool operator==(const Case&) const = default;
};

/// A case with its operands. A weight of the head takes longer to fill than to multiply by: one
/// case is kept for all repetitions.
struct Prepared {
  explicit Prepared(const Case& made_for) : c(made_for), bench(c.threads) {
    const int64_t K = c.layer.K, N = c.layer.N;
    x = {.T = c.T,
         .N = N,
         .K = K,
         .out = bench.random({c.T, N}),
         .inp = bench.random({c.T, K}),
         .w = bench.random({N, K})};
    if (c.bf16) {
      x.out = as_bf16(bench, x.out);
      x.inp = as_bf16(bench, x.inp);
      if (c.orientation != 2) x.w = as_bf16(bench, x.w);
      onednn_bf16.emplace(c.orientation, x);
    }
  }

  Case c;
  Bench bench;
  Operands x;
  std::optional<OneDnnBf16> onednn_bf16;
};

Prepared& prepared(const Case& c) {
  static std::optional<Prepared> kept;
  if (!kept || kept->c != c) kept.emplace(c);
  return *kept;
}

/// The GFLOP/s of so many calls as fill the time, after one that finds the threads and the caches
/// as whoever came before has left them: asleep, after the pause in run(), for the first of the
/// three.
template <class F>
double rate(Cost cost, F&& product) {
  constexpr int64_t kNanoseconds = 10'000'000;
  product();
  const int64_t begin = now_ns();
  int64_t calls = 0, passed = 0;
  do {
    product();
    benchmark::ClobberMemory();
    ++calls;
    passed = now_ns() - begin;
  } while (passed < kNanoseconds);
  return static_cast<double>(cost.flops * calls) / static_cast<double>(passed);
}

void run(benchmark::State& state, const Case& c) {
  Prepared& now = prepared(c);
  openblas_set_num_threads(c.threads);
  omp_set_num_threads(c.threads);  // oneDNN's
  const Cost cost = cost::matmul(c.T, c.layer.N, c.layer.K);
  const auto measure = [&](const char* who, auto&& product) {
    state.counters[who] = rate(cost, product);
  };
  const auto measure_ours = [&] {
    measure("ours", [&] { ours(now.bench.ctx(), c.orientation, c.layer, now.x); });
  };
  const auto measure_onednn = [&] {
    measure("onednn", [&] {
      if (c.bf16) return now.onednn_bf16->run();
      onednn(c.orientation, now.x);
    });
  };
  // Who comes first, after the pause below, finds cores that sleep: each has its turn.
  static bool ours_first = false;
  ours_first = !ours_first;
  for (auto _ : state) {
    if (ours_first) measure_ours();
    measure_onednn();
    if (!ours_first) measure_ours();
    if (c.bf16) continue;
    measure("openblas", [&] { openblas(c.orientation, now.x); });
    // Threads of OpenBLAS wait awake for some 30 ms, on the cores that we want next.
    if (c.threads > 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void register_case(const Case& c) {
  const auto orientation = kOrientations[static_cast<size_t>(c.orientation)];
  const std::string name = fmt::format("{}{}/T{}/{}/threads{}", c.bf16 ? "bf16/" : "", c.layer.name,
                                       c.T, orientation, c.threads);
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    run(state, c);
  })->Iterations(1);
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
