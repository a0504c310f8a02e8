// The operations of the CUDA table on a GPU, at the sizes of GPT-2 124M in BF16: time, rates, and
// per cent of what the same GPU can do.
//
//   bench_cuda                             all of them
//   bench_cuda --benchmark_filter=norm     some
//
// What moves bytes is held against a copy from device memory to device memory, bytes read and bytes
// written both counted, every operand once. What multiplies is held against a product of 8192 x
// 8192 x 8192. Arrays are larger than the caches. The time of a call is that of many in a row, so
// that starting one hides behind those that run.
#include <algorithm>
#include <cmath>
#include <functional>
#include <new>

#include <benchmark/benchmark.h>

#include "bench/call.h"
#include "bench/gpu.h"
#include "kernels/cuda/cuda_device.h"

namespace ladder::bench {
namespace {

constexpr int64_t C = 768, NH = 12, HS = C / NH, V = 50304, kVocab = 50257;

/// Extents that a smaller device, or none, can do with less of.
struct Sizes {
  int64_t B = 64, T = 1024;
  int64_t side = 8192;                ///< of the product that is the ceiling
  int64_t copied = int64_t{1} << 30;  ///< bytes, likewise
};

struct Op {
  const char* name;
  double bytes, flops;  ///< one of them 0: it is held against the other's ceiling
  std::function<void()> run;
};

Op moves(const char* name, std::initializer_list<Tensor> operands, std::function<void()> run) {
  int64_t bytes = 0;
  for (const Tensor& x : operands) bytes += x.bytes();
  return {.name = name, .bytes = static_cast<double>(bytes), .flops = 0, .run = std::move(run)};
}

Op multiplies(const char* name, int64_t flops, std::function<void()> run) {
  return {.name = name, .bytes = 0, .flops = static_cast<double>(flops), .run = std::move(run)};
}

/// Passes over activations. What is read and written is named twice.
std::vector<Op> passes_of(Gpu& gpu, const Sizes& s) {
  const int64_t B = s.B, T = s.T;
  const Ctx& ctx = gpu.ctx();
  const Tensor x = gpu.half({B, T, C}), y = gpu.half({B, T, C}), d = gpu.half({B, T, C});
  const Tensor w = gpu.half({C}), b = gpu.half({C}), dw = gpu.full({C}), db = gpu.full({C});
  const Tensor mean = gpu.full({B, T}), rstd = gpu.full({B, T});
  const Tensor h = gpu.half({B, T, 4 * C}), g = gpu.half({B, T, 4 * C}), dh = gpu.full({4 * C});
  const Tensor gated = gpu.half({B, T, 2 * C}), qkv = gpu.half({B, T, 3 * C});
  const Tensor angles = gpu.full({T, HS});
  const Tensor tokens = gpu.tokens({B, T}, kVocab), wte = gpu.half({V, C}), wpe = gpu.half({T, C});
  const Tensor dwte = gpu.full({V, C}), dwpe = gpu.full({T, C});
  return {
      moves("norm_forward", {x, y, mean, rstd},
            call(ctx, &Kernels::norm_forward, y, mean, rstd, x, w, b)),
      moves("norm_forward_rms", {x, y, rstd},
            call(ctx, &Kernels::norm_forward, y, {}, rstd, x, w, {})),
      moves("norm_backward_input", {x, y, d, mean, rstd},
            call(ctx, &Kernels::norm_backward_input, y, d, x, w, mean, rstd)),
      moves("norm_backward_weight", {x, d, mean, rstd},
            call(ctx, &Kernels::norm_backward_weight, dw, db, d, x, mean, rstd, Into::Write)),
      moves("bias_backward", {h}, call(ctx, &Kernels::bias_backward, dh, h, Into::Write)),
      moves("gelu_forward", {h, g}, call(ctx, &Kernels::gelu_forward, g, h)),
      moves("gelu_backward", {g, g, h}, call(ctx, &Kernels::gelu_backward, g, g, h)),
      moves("swiglu_forward", {h, gated}, call(ctx, &Kernels::swiglu_forward, gated, h)),
      moves("swiglu_backward", {g, gated, h}, call(ctx, &Kernels::swiglu_backward, g, gated, h)),
      moves("rope", {x, x, y, y}, call(ctx, &Kernels::rope, qkv, angles, NH, false)),
      moves("residual_forward", {y, x, d}, call(ctx, &Kernels::residual_forward, y, x, d, b)),
      moves("add", {g, g, h}, call(ctx, &Kernels::add, g, g, h)),
      moves("embed_forward", {y, y, tokens},
            call(ctx, &Kernels::embed_forward, y, tokens, wte, wpe)),
      moves("embed_backward", {d, d, dwte, dwpe},
            call(ctx, &Kernels::embed_backward, dwte, dwpe, d, tokens, Into::Write)),
  };
}

/// What is done to weights (R,C) and to their gradients, and the loss.
std::vector<Op> updates_of(Gpu& gpu, const Sizes& s) {
  const int64_t R = std::max<int64_t>(s.B * s.T, 64), n = R * C, B = std::max<int64_t>(s.B / 4, 1);
  const Ctx& ctx = gpu.ctx();
  const Tensor w = gpu.full({R, C}), g = gpu.full({R, C}), narrow = gpu.half({R, C});
  const Tensor m = gpu.zeros(Dtype::F32, {R, C}), v = gpu.zeros(Dtype::F32, {R, C});
  const Tensor m_code = gpu.zeros(Dtype::U8, {n}), v_code = gpu.zeros(Dtype::U8, {n});
  const Tensor m_scale = gpu.zeros(Dtype::F32, {n / kQuantBlock});
  const Tensor v_scale = gpu.zeros(Dtype::F32, {n / kQuantBlock});
  const Tensor limbs = gpu.zeros(Dtype::I64, {1, kLimbs});
  const Tensor logits = gpu.half({B, s.T, V}), losses = gpu.full({B});
  const Tensor targets = gpu.tokens({B, s.T}, kVocab);
  return {
      moves("cross_entropy", {logits, logits},
            call(ctx, &Kernels::cross_entropy, losses, logits, logits, targets, kVocab, 1)),
      moves("cast_to_bf16", {w, narrow}, call(ctx, &Kernels::cast, narrow, w)),
      moves("scale", {g, g}, call(ctx, &Kernels::scale, g, 1)),
      moves("squared_norm", {g}, call(ctx, &Kernels::squared_norm, limbs, g.view({1, n}))),
      moves("adamw_update", {w, w, m, m, v, v, g},
            call(ctx, &Kernels::adamw_update, w, m, v, g, kAdam)),
      moves("lion_update", {w, w, m, m, g}, call(ctx, &Kernels::lion_update, w, m, g, kLion)),
      moves("adamw8bit_update", {w, w, g, m_code, m_code, v_code, v_code},
            call(ctx, &Kernels::adamw8bit_update, w.view({n}), m_code, m_scale, v_code, v_scale,
                 g.view({n}), kAdam)),
  };
}

/// Attention counts the pairs that the mask leaves: half.
std::vector<Op> products_of(Gpu& gpu, const Sizes& s) {
  const int64_t B = s.B / 4 + 1, T = s.T, N = 4 * C, rows = B * T, pairs = T * (T + 1) / 2;
  const Ctx& ctx = gpu.ctx();
  const Tensor x = gpu.half({B, T, C}), h = gpu.half({B, T, N}), w = gpu.half({N, C});
  const Tensor dw = gpu.full({N, C}), head = gpu.half({V, C}), logits = gpu.half({B, T, V});
  const Tensor qkv = gpu.half({B, T, 3 * C}), dqkv = gpu.half({B, T, 3 * C});
  const Tensor out = gpu.half({B, T, C}), lse = gpu.full({B, NH, T}), none;
  return {
      multiplies("matmul_forward", 2 * rows * N * C,
                 call(ctx, &Kernels::matmul_forward, h, x, w, none, kLeaves)),
      multiplies("matmul_backward_input", 2 * rows * N * C,
                 call(ctx, &Kernels::matmul_backward_input, x, h, w, kLeaves)),
      multiplies("matmul_backward_weight", 2 * rows * N * C,
                 call(ctx, &Kernels::matmul_backward_weight, dw, h, x, Into::Write)),
      multiplies("matmul_forward_head", 2 * rows * V * C,
                 call(ctx, &Kernels::matmul_forward, logits, x, head, none, kLeaves)),
      multiplies("attention_forward", 4 * B * NH * pairs * HS,
                 call(ctx, &Kernels::attention_forward, out, lse, qkv)),
      multiplies("attention_backward", 10 * B * NH * pairs * HS,
                 call(ctx, &Kernels::attention_backward, dqkv, x, qkv, out, lse)),
  };
}

/// Heads of 128 channels: by this GPU's kernels, by those of all GPUs, and by those for 99 KiB of
/// shared memory.
std::vector<Op> large_heads_of(Gpu& gpu, const Sizes& s) {
  const int64_t B = s.B / 16 + 1, T = 4 * s.T, heads = 16, size = 128, pairs = T * (T + 1) / 2;
  const Ctx& ctx = gpu.ctx();
  const Tensor qkv = gpu.half({B, T, 3 * heads * size}), dqkv = gpu.half(qkv.shape);
  const Tensor out = gpu.half({B, T, heads * size}), lse = gpu.full({B, heads, T});
  const auto forward = call(ctx, &Kernels::attention_forward, out, lse, qkv);
  const auto backward = call(ctx, &Kernels::attention_backward, dqkv, out, qkv, out, lse);
  const auto without_hopper = [&ctx](int64_t shared, const auto& attend) {
    return [attend, shared, &device = cuda::device_of(ctx)] {
      device.use_hopper(false);
      device.limit_shared(shared);
      attend();
      device.use_hopper(true);
      device.limit_shared(INT64_MAX);
    };
  };
  const auto usual = [&](const auto& attend) { return without_hopper(INT64_MAX, attend); };
  const auto small = [&](const auto& attend) { return without_hopper(99 << 10, attend); };
  const int64_t one = 2 * B * heads * pairs * size;  // a product of all pairs
  return {multiplies("attention_forward_of_128", 2 * one, forward),
          multiplies("attention_forward_of_128_not_as_Hopper", 2 * one, usual(forward)),
          multiplies("attention_forward_of_128_in_99_KiB", 2 * one, small(forward)),
          multiplies("attention_backward_of_128", 5 * one, backward),
          multiplies("attention_backward_of_128_not_as_Hopper", 5 * one, usual(backward)),
          multiplies("attention_backward_of_128_in_99_KiB", 5 * one, small(backward))};
}

/// The MLP's products on codes, and how codes are made: both copies of them.
std::vector<Op> fp8_of(Gpu& gpu, const Sizes& s) {
  const int64_t B = s.B / 4 + 1, T = s.T, N = 4 * C, rows = B * T;
  const Ctx& ctx = gpu.ctx();
  auto* scale = new (gpu.tokens({2}, kVocab).ptr) Fp8Scale;  // of both sides
  const auto codes_of = [&](const Tensor& x, Dtype dtype) {
    Tensor codes = gpu.zeros(dtype, x.shape);
    codes.transposed = gpu.zeros(dtype, x.shape).ptr;
    codes.fp8 = scale;
    cuda::kernels().cast(ctx, codes, x);
    return codes;
  };
  const Tensor x = gpu.half({B, T, C}), h = gpu.half({B, T, N}), dw = gpu.full({N, C}), none;
  const Tensor x8 = codes_of(x, Dtype::E4M3), h8 = codes_of(h, Dtype::E5M2);
  const Tensor w8 = codes_of(gpu.half({N, C}), Dtype::E4M3);
  return {
      moves("gelu_forward_codes", {h, h8, h8}, call(ctx, &Kernels::gelu_forward_codes, h8, h, h)),
      moves("gelu_backward_codes", {h, h, h, h8, h8},
            call(ctx, &Kernels::gelu_backward_codes, h8, h, h, h)),
      moves("cast_to_fp8", {h, h8, h8}, call(ctx, &Kernels::cast, h8, h)),
      multiplies("fp8_forward", 2 * rows * N * C,
                 call(ctx, &Kernels::matmul_forward, h, x8, w8, none, kLeaves)),
      multiplies("fp8_backward_input", 2 * rows * N * C,
                 call(ctx, &Kernels::matmul_backward_input, x, h8, w8, kLeaves)),
      multiplies("fp8_backward_weight", 2 * rows * N * C,
                 call(ctx, &Kernels::matmul_backward_weight, dw, h8, x8, Into::Write)),
  };
}

/// Eight experts of the size of an MLP, two for each token.
std::vector<Op> experts_of(Gpu& gpu, const Sizes& s) {
  const int64_t B = s.B / 4 + 1, T = s.T, N = 4 * C, E = 8, M = 2 * B * T;
  const Ctx& ctx = gpu.ctx();
  const Tensor chosen = gpu.tokens({B, T, 2}, kVocab), weight = gpu.full({B, T, 2});
  for (int64_t i = 0; i < M; ++i)  // one of the first four, one of the others
    chosen.data<int32_t>()[i] = chosen.data<int32_t>()[i] % 4 + static_cast<int32_t>(i % 2 * 4);
  const Tensor expert = gpu.on_device(chosen);  // where a router writes it
  const ExpertRows rows{.offsets = gpu.tokens({E + 1}, kVocab),
                        .row = gpu.zeros(Dtype::I32, {B, T, 2}),
                        .from = gpu.zeros(Dtype::I32, {M})};
  const Tensor x = gpu.half({B, T, C}), y = gpu.half({M, C}), dy = gpu.half({M, C});
  const Tensor h = gpu.half({M, N}), w = gpu.half({E, N, C}), dw = gpu.full({E, N, C});
  const Tensor dweight = gpu.full({B, T, 2});
  const Tensor logits = gpu.full({B, T, E}), scores = gpu.full({B, T, E});
  const Tensor taken = gpu.zeros(Dtype::I32, {B, T, 2}), share = gpu.full({B, T, 2});
  const Tensor load = gpu.zeros(Dtype::I32, {B, E}), losses = gpu.full({2, B});
  cuda::kernels().expert_rows(ctx, rows, expert, 0);
  return {
      moves("route_forward", {logits, scores, taken, share},
            call(ctx, &Kernels::route_forward, taken, share, scores, load, losses, logits, {},
                 RouteRule{})),
      moves("expert_rows", {expert, rows.row, rows.from},
            call(ctx, &Kernels::expert_rows, rows, expert, 0)),
      moves("gather_rows", {y, y}, call(ctx, &Kernels::gather_rows, y, x, rows)),
      moves("unpermute_forward", {y, x},
            call(ctx, &Kernels::unpermute_forward, x, y, rows, expert, weight)),
      moves("unpermute_backward", {dy, y, x},
            call(ctx, &Kernels::unpermute_backward, dy, dweight, x, y, rows, weight)),
      multiplies("grouped_matmul_forward", 2 * M * N * C,
                 call(ctx, &Kernels::grouped_matmul_forward, h, y, w, rows, kLeaves)),
      multiplies("grouped_matmul_backward_input", 2 * M * N * C,
                 call(ctx, &Kernels::grouped_matmul_backward_input, y, h, w, rows, kLeaves)),
      multiplies("grouped_matmul_backward_weight", 2 * M * N * C,
                 call(ctx, &Kernels::grouped_matmul_backward_weight, dw, h, y, rows, Into::Write)),
  };
}

/// Thousand millions a second, in the best of several tries.
double best_rate(const Gpu& gpu, double amount, const std::function<void()>& run, int calls) {
  double best = 0;
  for (int i = 0; i < 6; ++i) best = std::max(best, 1e-9 * amount / seconds(gpu, run, calls));
  return best;
}

struct Ceilings {
  double copy, product;  ///< GB/s, GFLOP/s
};

Ceilings measure(const Sizes& s, int calls) {
  Gpu gpu;
  const int64_t n = s.side;
  const Tensor from = gpu.zeros(Dtype::U8, {s.copied}), to = gpu.zeros(Dtype::U8, {s.copied});
  const Tensor a = gpu.half({n, n}), b = gpu.half({n, n}), out = gpu.half({n, n});
  const auto copy = [&] { gpu.device().copy(to.ptr, from.ptr, s.copied); };
  const auto product = [&] {
    cuda::kernels().matmul_forward(gpu.ctx(), out, a, b, Tensor{}, kLeaves);
  };
  return {.copy = best_rate(gpu, 2 * static_cast<double>(s.copied), copy, calls),
          .product = best_rate(gpu, 2 * std::pow(static_cast<double>(n), 3), product, calls)};
}

void register_ops(const Gpu& gpu, const std::vector<Op>& ops, const Ceilings& ceilings, int calls) {
  for (const Op& op : ops)
    benchmark::RegisterBenchmark(op.name,
                                 [=, &gpu](benchmark::State& state) {
                                   op.run();  // the first chooses algorithms
                                   double best = INFINITY;
                                   for ([[maybe_unused]] auto _ : state) {
                                     const double took = seconds(gpu, op.run, calls);
                                     state.SetIterationTime(took);
                                     best = std::min(best, took);
                                   }
                                   const double amount = 1e-9 * (op.bytes + op.flops) / best;
                                   const bool of_memory = op.bytes > 0;
                                   state.counters[of_memory ? "GB/s" : "GFLOP/s"] = amount;
                                   state.counters[of_memory ? "copy%" : "product%"] =
                                       100 * amount /
                                       (of_memory ? ceilings.copy : ceilings.product);
                                 })
        // The best of these counts. The library would go on until half a second of single calls.
        ->Iterations(10)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace ladder::bench

int main(int argc, char** argv) {
  using namespace ladder::bench;
  benchmark::Initialize(&argc, argv);  // takes its own flags out
  Sizes sizes;
  int calls = 20;
  CLI::App app("The operations of the CUDA table; also takes --benchmark_help's flags");
  app.add_option("--batch", sizes.B, "sequences")->check(CLI::Range(1, 1024));
  app.add_option("--seq-len", sizes.T, "tokens of a sequence")->check(CLI::Range(1, 65536));
  app.add_option("--side", sizes.side, "of the product that others are held to");
  app.add_option("--copied", sizes.copied, "bytes of the copy that others are held to");
  app.add_option("--calls", calls, "in a row")->check(CLI::Range(1, 10000));
  return run_on_gpu(app, argc, argv, [&] {
    const Ceilings ceilings = measure(sizes, calls);
    Gpu gpu;
    benchmark::AddCustomContext("device", gpu.device().name());
    benchmark::AddCustomContext("ceilings", fmt::format("copy {:.0f} GB/s, product {:.1f} TFLOP/s",
                                                        ceilings.copy, 1e-3 * ceilings.product));
    register_ops(gpu, passes_of(gpu, sizes), ceilings, calls);
    register_ops(gpu, updates_of(gpu, sizes), ceilings, calls);
    register_ops(gpu, products_of(gpu, sizes), ceilings, calls);
    register_ops(gpu, large_heads_of(gpu, sizes), ceilings, calls);
    register_ops(gpu, fp8_of(gpu, sizes), ceilings, calls);
    register_ops(gpu, experts_of(gpu, sizes), ceilings, calls);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  });
}
