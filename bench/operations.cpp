// Every operation of the cpu table, at the sizes of `tiny` and of GPT-2 124M: time and rates.
#include <functional>
#include <thread>

#include "bench/bench.h"

namespace ladder::bench {
namespace {

struct Model {
  const char* name;
  int64_t B, T, C, NH, V;
};
constexpr Model kModels[] = {{"tiny", 12, 64, 128, 4, 256}, {"124m", 4, 64, 768, 12, 50304}};

struct Op {
  const char* name;
  Cost cost;
  std::function<void()> run;
};

std::vector<Op> rows_of(Bench& box, const Model& m) {
  const auto [_, B, T, C, NH, V] = m;
  const Ctx& ctx = box.ctx();
  const Kernels& k = cpu_kernels();
  const Tensor x = box.random({B, T, C}), d = box.random({B, T, C}), y = box.random({B, T, C});
  const Tensor w = box.random({C}), b = box.random({C}), dw = box.random({C}), db = box.random({C});
  const Tensor mean = box.random({B, T}), rstd = box.random({B, T});
  const Tensor h = box.random({B, T, 4 * C}), g = box.random({B, T, 4 * C});
  const Tensor wide = box.random({4 * C});
  const Tensor qkv = box.random({B, T, 3 * C}), dqkv = box.random({B, T, 3 * C});
  const Tensor lse = box.random({B, NH, T});
  const Tensor logits = box.random({B, T, V}), dlogits = box.random({B, T, V});
  const Tensor losses = box.random({B}), tokens = box.tokens({B, T}, V - 1);
  const Tensor wte = box.random({V, C}), wpe = box.random({T, C});
  const int64_t HS = C / NH;
  return {
      {"embed_forward", cost::embed_forward(B, T, C),
       [=, &ctx, &k] { k.embed_forward(ctx, y, tokens, wte, wpe); }},
      {"embed_backward", cost::embed_backward(B, T, C, V),
       [=, &ctx, &k] { k.embed_backward(ctx, wte, wpe, d, tokens, Into::Write); }},
      {"norm_forward", cost::norm_forward(B, T, C),
       [=, &ctx, &k] { k.norm_forward(ctx, y, mean, rstd, x, w, b); }},
      {"norm_backward_input", cost::norm_backward_input(B, T, C),
       [=, &ctx, &k] { k.norm_backward_input(ctx, y, d, x, w, mean, rstd); }},
      {"norm_backward_weight", cost::norm_backward_weight(B, T, C),
       [=, &ctx, &k] { k.norm_backward_weight(ctx, dw, db, d, x, mean, rstd, Into::Write); }},
      {"bias_backward", cost::bias_backward(B, T, 4 * C),
       [=, &ctx, &k] { k.bias_backward(ctx, wide, h, Into::Write); }},
      {"gelu_forward", cost::gelu_forward(h.size()), [=, &ctx, &k] { k.gelu_forward(ctx, g, h); }},
      {"gelu_backward", cost::gelu_backward(h.size()),
       [=, &ctx, &k] { k.gelu_backward(ctx, g, h, h); }},
      {"attention_forward", cost::attention_forward(B, T, NH, HS),
       [=, &ctx, &k] { k.attention_forward(ctx, y, lse, qkv); }},
      {"attention_backward", cost::attention_backward(B, T, NH, HS),
       [=, &ctx, &k] { k.attention_backward(ctx, dqkv, d, qkv, x, lse); }},
      {"join_forward", cost::join_forward(B * T, C),
       [=, &ctx, &k] { k.join_forward(ctx, y, x, d, w); }},
      {"add", cost::add(h.size()), [=, &ctx, &k] { k.add(ctx, g, g, h); }},
      {"scale", cost::scale(h.size()), [=, &ctx, &k] { k.scale(ctx, g, 1); }},
      {"cross_entropy", cost::cross_entropy(B, T, V),
       [=, &ctx, &k] { k.cross_entropy(ctx, losses, dlogits, logits, tokens, V - 1, 1); }},
  };
}

std::vector<Op> products_of(Bench& box, const Model& m) {
  const auto [_, B, T, C, NH, V] = m;
  const Ctx& ctx = box.ctx();
  const Kernels& k = cpu_kernels();
  const Tensor x = box.random({B, T, C}), h = box.random({B, T, 4 * C}), w = box.random({4 * C, C});
  const Cost cost = cost::matmul(B * T, 4 * C, C);
  return {
      {"matmul_forward", cost,
       [=, &ctx, &k] { k.matmul_forward(ctx, h, x, w, Tensor{}, kLeaves); }},
      {"matmul_backward_input", cost,
       [=, &ctx, &k] { k.matmul_backward_input(ctx, x, h, w, kLeaves); }},
      {"matmul_backward_weight", cost,
       [=, &ctx, &k] { k.matmul_backward_weight(ctx, w, h, x, Into::Write); }},
  };
}

/// On one matrix of the model: (4 C, C).
std::vector<Op> updates_of(Bench& box, const Model& m) {
  const Ctx& ctx = box.ctx();
  const Kernels& k = cpu_kernels();
  const int64_t C = m.C, n = 4 * C * C;
  const Tensor w = box.random({4 * C, C}), g = box.random({4 * C, C});
  const Tensor first = box.alloc(Dtype::F32, w.shape), second = box.alloc(Dtype::F32, w.shape);
  const Tensor row = box.alloc(Dtype::F32, {4 * C}), col = box.alloc(Dtype::F32, {C});
  const Tensor limbs = box.alloc(Dtype::I64, {4 * C, kLimbs}), one = limbs.first(1);
  const Tensor m_code = box.alloc(Dtype::U8, {n}), v_code = box.alloc(Dtype::U8, {n});
  const Tensor m_scale = box.alloc(Dtype::F32, {n / kQuantBlock});
  const Tensor v_scale = box.alloc(Dtype::F32, {n / kQuantBlock});
  const SgdStep sgd{.lr = 1e-3F, .momentum = 0.9F, .nesterov = false};
  const LionStep lion{.lr = 1e-3F, .beta1 = 0.9F, .beta2 = 0.99F, .weight_decay = 0.1F};
  const AdafactorStep factored{
      .lr = 1e-3F, .beta2 = 0.9F, .eps = 1e-30F, .clip = 1, .weight_decay = 0};
  const AdamStep adam{.lr = 1e-3F,
                      .beta1 = 0.9F,
                      .beta2 = 0.95F,
                      .eps = 1e-8F,
                      .weight_decay = 0.1F,
                      .decoupled = true,
                      .correction1 = 0.1F,
                      .correction2 = 0.05F};
  return {
      {"squared_norm", cost::squared_norm(n),
       [=, &ctx, &k] {
         k.squared_norm(ctx, one, g.view({1, n}));
       }},
      {"adaptive_clip", cost::adaptive_clip(n),
       [=, &ctx, &k] { k.adaptive_clip(ctx, g, limbs, limbs, 1e-4F); }},
      {"sgd_update", cost::sgd_update(n), [=, &ctx, &k] { k.sgd_update(ctx, w, first, g, sgd); }},
      {"adamw_update", cost::adamw_update(n),
       [=, &ctx, &k] { k.adamw_update(ctx, w, first, second, g, adam); }},
      {"lion_update", cost::lion_update(n),
       [=, &ctx, &k] { k.lion_update(ctx, w, first, g, lion); }},
      {"adafactor_update", cost::adafactor_update(n),
       [=, &ctx, &k] { k.adafactor_update(ctx, w, row, col, g, factored); }},
      {"adamw8bit_update", cost::adamw8bit_update(n),
       [=, &ctx, &k] {
         k.adamw8bit_update(ctx, w.view({n}), m_code, m_scale, v_code, v_scale, g.view({n}), adam);
       }},
  };
}

}  // namespace
}  // namespace ladder::bench

int main(int argc, char** argv) {
  using namespace ladder::bench;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Bench box(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  for (const Model& model : kModels)
    for (const auto& family : {rows_of, products_of, updates_of})
      for (const Op& op : family(box, model))
        benchmark::RegisterBenchmark(fmt::format("{}/{}", model.name, op.name).c_str(),
                                     [op](benchmark::State& state) {
                                       while (state.KeepRunning()) op.run();
                                       count(state, op.cost);
                                     })
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
