// The operations of the cpu table: time, rates, and per cent of the roofline of this machine.
//
//   bench_operations                                  all of them
//   bench_operations --benchmark_filter=beyond        those that memory bounds, beyond the caches
//   bench_operations --ceilings                       only what the machine can do, as JSON
//
// `MB` and `MFLOP` are what a call must move and compute, by kernels/cost.h. `roofline%` is ideal
// time over measured time. The ideal is the slower of flops at peak and bytes at copy bandwidth
// (bench/ceilings.h). Measured is the median call. Far more than 100 says that the operands fit the
// caches, which are faster than memory: judge the bandwidth of an operation by the sizes called
// `beyond`, each call of which takes turns with a copy and with reading alone (`copy GB/s`, `read
// GB/s`). The copy is the ceiling; sums over tokens and norms, which only read, hardly pass `read`.
#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>

#include "bench/call.h"
#include "bench/ceilings.h"

namespace ladder::bench {
namespace {

/// Sizes of the operands. `hidden` is the width inside the MLP.
struct Model {
  const char* name;
  int64_t B, T, C, NH, V, hidden;
};
constexpr Model kTiny{"tiny", 12, 64, 128, 4, 256, 4 * 128};
constexpr Model kShort{"124m/B4T64", 4, 64, 768, 12, 50304, 4 * 768};
constexpr Model kLong{"124m/B1T1024", 1, 1024, 768, 12, 50304, 4 * 768};
/// An activation of 66 MiB and a weight of 64 MiB: more than the last cache of most machines.
constexpr Model kBeyond{"beyond", 22, 1024, 768, 12, 256, 768};
constexpr int64_t kBeyondSide = 4096;

/// Experts of F hidden channels, two for each token.
struct Experts {
  const char* name;
  int64_t B, T, C, F, E;
};
constexpr Experts kExperts[] = {{"moe-tiny", 8, 256, 128, 384, 8},
                                {"moe-124m/B2T1024", 2, 1024, 768, 2048, 8}};

struct Op {
  std::string name;
  Cost cost;
  std::function<void()> run;
};

/// One pass over activations each: memory bounds them.
std::vector<Op> passes_of(Bench& box, const Model& m) {
  const int64_t B = m.B, T = m.T, C = m.C, H = m.hidden;
  const Ctx& ctx = box.ctx();
  const Tensor x = box.random({B, T, C}), d = box.random({B, T, C}), y = box.random({B, T, C});
  const Tensor w = box.random({C}), b = box.random({C}), dw = box.random({C}), db = box.random({C});
  const Tensor mean = box.random({B, T}), rstd = box.random({B, T});
  const Tensor h = box.random({B, T, H}), g = box.random({B, T, H}), wide = box.random({H});
  const Tensor gated = box.random({B, T, H / 2});
  const Tensor dh = box.random({B, T, H});  // not in place of g: repeated, that sinks to denormals
  const Tensor narrow = box.alloc(Dtype::BF16, {B, T, C});
  const Cost to_bf16{.bytes = x.bytes() + narrow.bytes(), .flops = x.size()};
  return {
      {"norm_forward", cost::norm_forward(B, T, C),
       call(ctx, &Kernels::norm_forward, y, mean, rstd, x, w, b)},
      {"norm_forward_rms", cost::norm_forward(B, T, C),
       call(ctx, &Kernels::norm_forward, y, {}, rstd, x, w, {})},
      {"norm_backward_input", cost::norm_backward_input(B, T, C),
       call(ctx, &Kernels::norm_backward_input, y, d, x, w, mean, rstd)},
      {"norm_backward_weight", cost::norm_backward_weight(B, T, C),
       call(ctx, &Kernels::norm_backward_weight, dw, db, d, x, mean, rstd, Into::Write)},
      {"bias_backward", cost::bias_backward(B, T, H),
       call(ctx, &Kernels::bias_backward, wide, h, Into::Write)},
      {"gelu_forward", cost::gelu_forward(h.size()), call(ctx, &Kernels::gelu_forward, g, h)},
      {"gelu_backward", cost::gelu_backward(h.size()),
       call(ctx, &Kernels::gelu_backward, dh, g, h)},
      {"swiglu_forward", cost::swiglu_forward(gated.size()),
       call(ctx, &Kernels::swiglu_forward, gated, h)},
      {"swiglu_backward", cost::swiglu_backward(gated.size()),
       call(ctx, &Kernels::swiglu_backward, dh, gated, h)},
      {"residual_forward", cost::residual_forward(B * T, C),
       call(ctx, &Kernels::residual_forward, y, x, d, w)},
      {"add", cost::add(h.size()), call(ctx, &Kernels::add, g, g, h)},
      {"scale", cost::scale(h.size()), call(ctx, &Kernels::scale, g, 1)},
      {"cast_to_bf16", to_bf16, call(ctx, &Kernels::cast, narrow, x)},
  };
}

/// What knows of tokens and of their order.
std::vector<Op> sequences_of(Bench& box, const Model& m) {
  const int64_t B = m.B, T = m.T, C = m.C, NH = m.NH, V = m.V, HS = C / NH;
  const Ctx& ctx = box.ctx();
  const Tensor x = box.random({B, T, C}), d = box.random({B, T, C}), y = box.random({B, T, C});
  const Tensor qkv = box.random({B, T, 3 * C}), dqkv = box.random({B, T, 3 * C});
  const Tensor cache = box.random({T, 2 * C});
  const Tensor lse = box.random({B, NH, T}), angles = box.random({T, HS});
  const Tensor logits = box.random({B, T, V}), dlogits = box.random({B, T, V});
  const Tensor max = box.random({B, T}), sum = box.random({B, T}), target = box.random({B, T});
  const Tensor losses = box.random({B}), tokens = box.tokens({B, T}, V - 1);
  const Tensor wte = box.random({V, C}), wpe = box.random({T, C});
  return {
      {"embed_forward", cost::embed_forward(B, T, C),
       call(ctx, &Kernels::embed_forward, y, tokens, wte, wpe)},
      {"embed_backward", cost::embed_backward(B, T, C, V),
       call(ctx, &Kernels::embed_backward, wte, wpe, d, tokens, Into::Write)},
      {"rope", cost::rope(B, T, NH, NH, HS), call(ctx, &Kernels::rope, dqkv, angles, NH, false)},
      {"attention_forward", cost::attention_forward(B, T, NH, HS),
       call(ctx, &Kernels::attention_forward, y, lse, qkv)},
      {"attention_backward", cost::attention_backward(B, T, NH, HS),
       call(ctx, &Kernels::attention_backward, dqkv, d, qkv, x, lse)},
      // A token at a time, each with the whole cache.
      {"attention_cached", cost::attention_cached(1, T, NH, NH, HS),
       call(ctx, &Kernels::attention_cached, y.view({B * T, C}).first(1),
            qkv.view({B * T, 3 * C}).first(1), cache, NH, {.T = T, .first = T - 1})},
      {"cross_entropy", cost::cross_entropy(B, T, V),
       call(ctx, &Kernels::cross_entropy, losses, dlogits, logits, tokens, V - 1, 1)},
      {"softmax_max", cost::softmax_max(B, T, V),
       call(ctx, &Kernels::softmax_max, max, logits, V - 1)},
      {"softmax_sum", cost::softmax_sum(B, T, V),
       call(ctx, &Kernels::softmax_sum, sum, target, logits, max, tokens, V - 1)},
      {"softmax_loss", cost::softmax_loss(B, T, V),
       call(ctx, &Kernels::softmax_loss, losses, dlogits, logits, max, sum, target, tokens, V - 1,
            1)},
  };
}

std::vector<Op> products_of(Bench& box, const Model& m) {
  const int64_t B = m.B, T = m.T, C = m.C, H = m.hidden;
  const Ctx& ctx = box.ctx();
  const Tensor x = box.random({B, T, C}), h = box.random({B, T, H}), w = box.random({H, C});
  const Cost cost = cost::matmul(B * T, H, C);
  const auto some = [](const Tensor& all, int64_t rows) {
    return all.view({all.rows(), all.dim(2)}).first(rows);
  };
  const auto forward_of = [&](int64_t rows) {
    return Op{
        fmt::format("matmul_forward of {}", rows), cost::matmul(rows, H, C),
        call(ctx, &Kernels::matmul_forward, some(h, rows), some(x, rows), w, Tensor{}, kLeaves)};
  };
  return {
      forward_of(1),
      forward_of(8),
      {"matmul_forward", cost, call(ctx, &Kernels::matmul_forward, h, x, w, Tensor{}, kLeaves)},
      {"matmul_backward_input", cost, call(ctx, &Kernels::matmul_backward_input, x, h, w, kLeaves)},
      {"matmul_backward_weight", cost,
       call(ctx, &Kernels::matmul_backward_weight, w, h, x, Into::Write)},
  };
}

/// Two different experts for each token, at random.
Tensor choices_of(Bench& box, const Experts& m) {
  const Tensor expert = box.tokens({m.B, m.T, 2}, m.E);
  auto* e = expert.data<int32_t>();
  for (int64_t i = 0; i < expert.size(); i += 2) {
    if (e[i] == e[i + 1]) e[i + 1] = static_cast<int32_t>((e[i] + 1) % m.E);
    if (e[i] > e[i + 1]) std::swap(e[i], e[i + 1]);
  }
  return expert;
}

/// What experts have beside their products.
std::vector<Op> routes_of(Bench& box, const Experts& m) {
  const int64_t B = m.B, T = m.T, C = m.C, E = m.E, k = 2, M = B * T * k;
  const Ctx& ctx = box.ctx();
  const Tensor expert = choices_of(box, m), load = box.alloc(Dtype::I32, {B, E});
  const Tensor logits = box.random({B, T, E}), dlogits = box.random({B, T, E});
  const Tensor scores = box.random({B, T, E}), losses = box.random({2, B});
  const Tensor weight = box.random({B, T, k}), dweight = box.random({B, T, k});
  const Tensor x = box.random({B, T, C}), y = box.random({M, C}), dy = box.random({M, C});
  const ExpertRows rows{.offsets = box.alloc(Dtype::I32, {E + 1}),
                        .row = box.alloc(Dtype::I32, {B, T, k}),
                        .from = box.alloc(Dtype::I32, {M})};
  const RouteRule rule{.sigmoid = false, .renormalize = true};
  cpu_kernels().expert_rows(ctx, rows, expert, 0);
  return {
      {"route_forward", cost::route_forward(B, T, E, k),
       call(ctx, &Kernels::route_forward, expert, weight, scores, load, losses, logits, {}, rule)},
      {"route_backward", cost::route_backward(B, T, E, k),
       call(ctx, &Kernels::route_backward, dlogits, dweight, expert, scores, load, logits, rule, 1,
            1)},
      {"expert_rows", cost::expert_rows(B, T, k),
       call(ctx, &Kernels::expert_rows, rows, expert, 0)},
      {"gather_rows", cost::gather_rows(B, T, k, C), call(ctx, &Kernels::gather_rows, y, x, rows)},
      {"unpermute_forward", cost::unpermute_forward(B, T, k, C),
       call(ctx, &Kernels::unpermute_forward, x, y, rows, expert, weight)},
      {"unpermute_backward", cost::unpermute_backward(B, T, k, C),
       call(ctx, &Kernels::unpermute_backward, dy, dweight, x, y, rows, weight)},
  };
}

/// The products of experts, gate and up (2F) or down, and of one layer over as many rows.
std::vector<Op> experts_of(Bench& box, const Experts& m, bool down) {
  const int64_t B = m.B, T = m.T, E = m.E, k = 2, M = B * T * k;
  const int64_t N = down ? m.C : 2 * m.F, K = down ? m.F : m.C;
  const Ctx& ctx = box.ctx();
  const ExpertRows rows{.offsets = box.alloc(Dtype::I32, {E + 1}),
                        .row = box.alloc(Dtype::I32, {B, T, k}),
                        .from = box.alloc(Dtype::I32, {M})};
  cpu_kernels().expert_rows(ctx, rows, choices_of(box, m), 0);
  const Tensor inp = box.random({M, K}), out = box.random({M, N}), w = box.random({E, N, K});
  const Tensor one = w.first(1).view({N, K});
  // Leaves of as many rows as an expert has in one, on average.
  const int64_t leaf = T * k / E / matrix_leaves(kTokenChunks, T);
  const auto sequences = [=](const Tensor& x) { return x.view({M / leaf, leaf, x.dim(1)}); };
  const auto name = [=](const char* op) { return std::string(op) + (down ? "_down" : "_up"); };
  const Cost cost = cost::matmul(M, N, K), grouped = cost::grouped_matmul(M, E, N, K);
  return {
      {name("grouped_forward"), grouped,
       call(ctx, &Kernels::grouped_matmul_forward, out, inp, w, rows, kLeaves)},
      {name("one_forward"), cost, call(ctx, &Kernels::matmul_forward, out, inp, one, {}, kLeaves)},
      {name("grouped_backward_input"), grouped,
       call(ctx, &Kernels::grouped_matmul_backward_input, inp, out, w, rows, kLeaves)},
      {name("one_backward_input"), cost,
       call(ctx, &Kernels::matmul_backward_input, inp, out, one, kLeaves)},
      {name("grouped_backward_weight"), grouped,
       call(ctx, &Kernels::grouped_matmul_backward_weight, w, out, inp, rows, Into::Write)},
      {name("one_backward_weight"), cost,
       call(ctx, &Kernels::matmul_backward_weight, one, sequences(out), sequences(inp),
            Into::Write)},
  };
}

/// What is done to a weight (R,C) and its gradient.
std::vector<Op> updates_of(Bench& box, int64_t R, int64_t C) {
  const Ctx& ctx = box.ctx();
  const int64_t n = R * C;
  const Tensor w = box.random({R, C}), g = box.random({R, C});
  const Tensor first = box.alloc(Dtype::F32, w.shape), second = box.alloc(Dtype::F32, w.shape);
  const Tensor row = box.alloc(Dtype::F32, {R}), col = box.alloc(Dtype::F32, {C});
  const Tensor limbs = box.alloc(Dtype::I64, {R, kLimbs}), one = box.alloc(Dtype::I64, {1, kLimbs});
  // Clipped by a factor close to 1, and by itself: repeated, it sinks.
  const Tensor clipped = box.random({R, C});
  constexpr float kClip = 0.99999e-3F;  // rows whose limbs are 0: 1e-3 of weights, 1e-6 of gradient
  const Tensor m_code = box.alloc(Dtype::U8, {n}), v_code = box.alloc(Dtype::U8, {n});
  const Tensor m_scale = box.alloc(Dtype::F32, {n / kQuantBlock});
  const Tensor v_scale = box.alloc(Dtype::F32, {n / kQuantBlock});
  const SgdStep sgd{.lr = 1e-3F, .momentum = 0.9F, .nesterov = false};
  const AdafactorStep factored{
      .lr = 1e-3F, .beta2 = 0.9F, .eps = 1e-30F, .clip = 1, .weight_decay = 0};
  return {
      {"squared_norm", cost::squared_norm(n),
       call(ctx, &Kernels::squared_norm, one, g.view({1, n}))},
      {"adaptive_clip", cost::adaptive_clip(n),
       call(ctx, &Kernels::adaptive_clip, clipped, limbs, limbs, kClip)},
      {"sgd_update", cost::sgd_update(n), call(ctx, &Kernels::sgd_update, w, first, g, sgd)},
      {"adamw_update", cost::adamw_update(n),
       call(ctx, &Kernels::adamw_update, w, first, second, g, kAdam)},
      {"lion_update", cost::lion_update(n), call(ctx, &Kernels::lion_update, w, first, g, kLion)},
      {"adafactor_update", cost::adafactor_update(n),
       call(ctx, &Kernels::adafactor_update, w, row, col, g, factored)},
      {"adamw8bit_update", cost::adamw8bit_update(n),
       call(ctx, &Kernels::adamw8bit_update, w.view({n}), m_code, m_scale, v_code, v_scale,
            g.view({n}), kAdam)},
  };
}

double median(std::vector<double>& of) {
  const auto middle = of.begin() + static_cast<int64_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

/// Times every call by itself: the median forgives a machine that is busy now and then.
/// @param memory if not null, a copy and a read follow each call, and the copy is the ceiling in
///               place of the one measured at the start; for operands that no cache holds, as both
///               empty them all
void run(benchmark::State& state, const Op& op, Ceilings ceilings, const Memory* memory) {
  std::vector<double> seconds, copies, reads;
  while (state.KeepRunning()) {
    const int64_t begin = now_ns();
    op.run();
    seconds.push_back(static_cast<double>(now_ns() - begin) * 1e-9);
    if (memory == nullptr) continue;
    copies.push_back(memory->rate(Memory::Use::CopyPastCaches));
    reads.push_back(memory->rate(Memory::Use::Read));
  }
  const double middle = median(seconds);
  if (memory != nullptr) {
    state.counters["copy GB/s"] = ceilings.copy = median(copies);
    state.counters["read GB/s"] = median(reads);
  }
  state.counters["MB"] = static_cast<double>(op.cost.bytes) * 1e-6;
  state.counters["MFLOP"] = static_cast<double>(op.cost.flops) * 1e-6;
  state.counters["GB/s"] = static_cast<double>(op.cost.bytes) * 1e-9 / middle;
  state.counters["GFLOP/s"] = static_cast<double>(op.cost.flops) * 1e-9 / middle;
  state.counters["roofline%"] = 100 * ideal_seconds(ceilings, op.cost) / middle;
}

void register_ops(const char* model, const std::vector<Op>& ops, const Ceilings& ceilings,
                  const Memory* memory = nullptr) {
  for (const Op& op : ops)
    benchmark::RegisterBenchmark(fmt::format("{}/{}", model, op.name).c_str(),
                                 [=](benchmark::State& state) { run(state, op, ceilings, memory); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}

void register_all(Bench& box, const Ceilings& ceilings, const Memory& memory) {
  for (const Model& m : {kTiny, kShort, kLong}) {
    register_ops(m.name, passes_of(box, m), ceilings);
    register_ops(m.name, sequences_of(box, m), ceilings);
    register_ops(m.name, products_of(box, m), ceilings);
    register_ops(m.name, updates_of(box, m.hidden, m.C), ceilings);
  }
  for (const Experts& m : kExperts) {
    register_ops(m.name, routes_of(box, m), ceilings);
    for (const bool down : {false, true}) register_ops(m.name, experts_of(box, m, down), ceilings);
  }
  register_ops(kBeyond.name, passes_of(box, kBeyond), ceilings, &memory);
  register_ops(kBeyond.name, updates_of(box, kBeyondSide, kBeyondSide), ceilings, &memory);
}

std::string text_of(const Ceilings& c, int threads) {
  return fmt::format(
      "{} threads; multiply-adds {:.1f} GFLOP/s, our product {:.1f}; copy {:.1f} GB/s, with plain "
      "stores {:.1f}; reads alone {:.1f}",
      threads, c.fma, c.gemm, c.copy, c.copy_plain, c.read);
}

std::string floors_of(const Ceilings& c, Dtype compute) {
  return fmt::format(R"({{"B4T64": {:.0f}, "B1T1024": {:.0f}}})",
                     1e3 * step_floor_seconds(c, 4, 64, compute),
                     1e3 * step_floor_seconds(c, 1, 1024, compute));
}

void print_json(const Ceilings& c, int threads) {
  fmt::print(
      R"({{"threads": {}, "fma": {:.1f}, "gemm": {:.1f}, "gemm_bf16": {:.1f}, "copy": {:.1f}, )"
      R"("copy_plain": {:.1f}, "read": {:.1f}, "floor_ms": {{"fp32": {}, "bf16": {}}}}})"
      "\n",
      threads, c.fma, c.gemm, c.gemm_bf16, c.copy, c.copy_plain, c.read, floors_of(c, Dtype::F32),
      floors_of(c, Dtype::BF16));
}

}  // namespace
}  // namespace ladder::bench

int main(int argc, char** argv) {
  using namespace ladder::bench;
  benchmark::Initialize(&argc, argv);  // takes its own flags out
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  bool only_ceilings = false;
  int64_t mebibytes = 0;
  CLI::App app("Every operation of the cpu table; also takes --benchmark_help's flags");
  app.add_option("--threads", threads, "of the kernels")->check(CLI::Range(1, 4096));
  app.add_flag("--ceilings", only_ceilings, "print what the machine can do, as JSON");
  app.add_option("--read", mebibytes, "print how fast an array of so many MiB is read, as JSON")
      ->check(CLI::Range(1, 1 << 20));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }

  if (mebibytes > 0) {
    fmt::print(R"({{"read": {:.1f}}})"
               "\n",
               read_rate(threads, mebibytes));
    return 0;
  }
  const Ceilings ceilings = measure_ceilings(threads);
  if (only_ceilings) {
    print_json(ceilings, threads);
    return 0;
  }
  benchmark::AddCustomContext("ceilings", text_of(ceilings, threads));
  Bench box(threads);
  const Memory memory(box);
  register_all(box, ceilings, memory);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
