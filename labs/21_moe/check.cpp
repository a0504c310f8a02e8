// Which experts tokens take, their rows, the router's losses and gradients, and a layer of experts
// forward and backward.
#include "labs/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "chapters/21_moe/balance.h"
#include "chapters/21_moe/moe.h"
#include "common/random.h"
#include "kernels/experts.h"
#include "labs/expert_choices.h"
#include "labs/kernel_counts.h"
#include "labs/rounded.h"

namespace ladder::lab {
namespace {

Tensor alloc(Arena& arena, Dtype dtype, Shape shape) {
  return arena.zeros(Mem::Workspace, "lab", dtype, shape);
}
/// Memory full of NaNs: a function must write all of it itself.
Tensor unwritten(Arena& arena, Dtype dtype, Shape shape) {
  const Tensor x = alloc(arena, dtype, shape);
  std::memset(x.ptr, 0xff, static_cast<size_t>(x.bytes()));
  return x;
}
/// Some of the choices are kElsewhere.
Tensor drawn_choices(const Sheet& sheet, Arena& arena, const ChoiceSizes& s, bool elsewhere) {
  const Tensor expert = alloc(arena, Dtype::I32, {s.B, s.T, s.k});
  draw_choices(Random(sheet.seed(), "choices"), expert, s.E);
  for (int64_t i = 0; elsewhere && i < expert.size(); ++i)
    if (int32_t& e = expert.data<int32_t>()[i]; e % 3 == 1) e = kElsewhere;
  return expert;
}

// ---- choices and rows ---------------------------------------------------------------------------

/// Choices of tokens whose scores take few different values, so that many are equal. With a bias
/// all keys are negative.
void run_choices(Sheet& sheet, const char* what, int64_t E, int64_t k) {
  const Random random(sheet.seed(), what);
  const std::string which = what;
  std::vector<float> bias(static_cast<size_t>(E));
  for (size_t e = 0; e < bias.size(); ++e)
    bias[e] = 0.25f * static_cast<float>(random.below(4, 1000 + e)) - 4;
  for (uint64_t token = 0; token < 12; ++token) {
    std::vector<float> scores(static_cast<size_t>(E));
    for (size_t e = 0; e < scores.size(); ++e)
      scores[e] = 0.25f * static_cast<float>(random.below(5, token, e));
    if (which == "NaN") {
      scores[random.below(scores.size(), token, 100)] = std::numeric_limits<float>::quiet_NaN();
      scores[random.below(scores.size(), token, 101)] = std::numeric_limits<float>::infinity();
    }
    std::vector<int32_t> expert(static_cast<size_t>(k), -7);
    choose_experts(expert.data(), scores.data(), which == "a bias" ? bias.data() : nullptr, E, k);
    sheet.text(fmt::format("choice/{}: token {}", what, token),
               fmt::format("{}", fmt::join(expert, " ")));
  }
}

void run_rows(Sheet& sheet, const ChoiceSizes& s, int64_t capacity, bool elsewhere) {
  Arena arena;
  const Tensor expert = drawn_choices(sheet, arena, s, elsewhere);
  // Behind each array stands one number more, which must not change. All numbers are 5 at first.
  const auto memory = [&](int64_t n) {
    const Tensor x = alloc(arena, Dtype::I32, {n + 1});
    std::fill_n(x.data<int32_t>(), x.size(), 5);
    return x.first(n);
  };
  const ExpertRows rows{.offsets = memory(s.E + 1),
                        .row = memory(expert.size()).view(expert.shape),
                        .from = memory(expert.size())};
  sort_by_expert(rows, expert, capacity);
  check_offsets(rows, rows.from.size());
  const std::string where =
      fmt::format("rows/capacity {}{}", capacity, elsewhere ? ", some elsewhere" : "");
  sheet.bits(where + ": offsets", integers(rows.offsets, s.E + 1));
  sheet.bits(where + ": row", integers(rows.row, rows.row.size()));
  sheet.bits(where + ": from", integers(rows.from, rows.offsets.data<int32_t>()[s.E]));
  std::vector<int32_t> behind;
  for (const Tensor& x : {rows.offsets, rows.row, rows.from})
    behind.push_back(x.data<int32_t>()[x.size()]);
  sheet.text(where + ", behind offsets, row and from", fmt::format("{}", fmt::join(behind, " ")));
}

// ---- the router, in double ----------------------------------------------------------------------

void run_router(Sheet& sheet, const ChoiceSizes& s, const RouteRule& rule, bool has_bias = true) {
  Arena arena;
  const Kernels& ref = kernels_of("ref");
  Ctx ctx;
  ctx.kernels = &ref;
  const auto real = [&](Shape shape) { return unwritten(arena, Dtype::F64, shape); };
  const Tensor logits = drawn_double(sheet, arena, "logits", {s.B, s.T, s.E});
  const Tensor bias = has_bias ? drawn_double(sheet, arena, "bias", {s.E}) : Tensor{};
  for (int64_t e = 0; has_bias && e < s.E; ++e) bias.data<double>()[e] *= 0.1;
  const Tensor expert = alloc(arena, Dtype::I32, {s.B, s.T, s.k});
  const Tensor load = alloc(arena, Dtype::I32, {s.B, s.E});
  std::fill_n(load.data<int32_t>(), load.size(), 3);  // of a step before
  const Tensor weight = real({s.B, s.T, s.k}), scores = real({s.B, s.T, s.E});
  const Tensor losses = real({2, s.B});
  ref.route_forward(ctx, expert, weight, scores, load, losses, logits, bias, rule);
  sheet.bits("router/choices: expert", integers(expert, expert.size()));
  sheet.bits("router/choices: weight", rounded(weight));
  sheet.bits("router/sums: load", integers(load, load.size()));
  sheet.bits("router/sums: losses", rounded(losses));
}

/// The gradient from scores, choices and loads that do not come from the student's forward pass.
void run_gradient(Sheet& sheet, const ChoiceSizes& s, const RouteRule& rule, float balance,
                  float z) {
  Arena arena;
  const Kernels& ref = kernels_of("ref");
  Ctx ctx;
  ctx.kernels = &ref;
  const Tensor logits = drawn_double(sheet, arena, "logits", {s.B, s.T, s.E});
  const Tensor dweight = drawn_double(sheet, arena, "dweight", {s.B, s.T, s.k});
  const Tensor expert = drawn_choices(sheet, arena, s, /*elsewhere=*/false);
  const Tensor scores = alloc(arena, Dtype::F64, logits.shape);
  const Tensor load = alloc(arena, Dtype::I32, {s.B, s.E});
  for (int64_t i = 0; i < expert.size(); ++i)
    ++load.data<int32_t>()[i / (s.T * s.k) * s.E + expert.data<int32_t>()[i]];
  for (int64_t row = 0; row < s.B * s.T; ++row) {
    const double* x = logits.data<double>() + row * s.E;
    double* p = scores.data<double>() + row * s.E;
    double sum = 0;
    for (int64_t e = 0; e < s.E; ++e) sum += std::exp(x[e]);
    for (int64_t e = 0; e < s.E; ++e)
      p[e] = rule.sigmoid ? 1 / (1 + std::exp(-x[e])) : std::exp(x[e]) / sum;
  }
  const Tensor dlogits = unwritten(arena, Dtype::F64, logits.shape);
  ref.route_backward(ctx, dlogits, dweight, expert, scores, load, logits, rule, balance, z);
  sheet.bits(fmt::format("gradient/{}, {}balance {}", rule.sigmoid ? "sigmoid" : "softmax",
                         rule.renormalize ? "renormalized, " : "", balance),
             rounded(dlogits));
}

// ---- a layer of experts -------------------------------------------------------------------------

void run_layer(Sheet& sheet, const ChoiceSizes& s, int64_t capacity) {
  CountedKernels kernels;
  kernels.count<&Kernels::swiglu_forward>();
  kernels.count<&Kernels::swiglu_backward>();
  kernels.count<&Kernels::gather_rows>();
  const Ctx& ctx = kernels.ctx();
  Arena arena;
  GptConfig config = preset("moe-nano");
  config.layers = 1;
  config.channels = 16;
  config.hidden = 8;
  config.seq_len = s.T;
  config.experts = {.count = s.E, .chosen = s.k};
  const ExpertSizes sizes(config, s.B);
  const ExpertLayers layers(arena, sizes, {});
  const ExpertTensors w{.router = {},
                        .fc = sheet.drawn(arena, "fc", {s.E, 2 * sizes.F, sizes.C}),
                        .proj_w = sheet.drawn(arena, "proj", {s.E, sizes.C, sizes.F})};
  const ExpertTensors dw{.router = {},
                         .fc = unwritten(arena, Dtype::F32, w.fc.shape),
                         .proj_w = unwritten(arena, Dtype::F32, w.proj_w.shape)};
  const Shape tokens{s.B, s.T, sizes.C}, choices{s.B, s.T, s.k};
  const Tensor out = unwritten(arena, Dtype::F32, tokens),
               dinp = unwritten(arena, Dtype::F32, tokens);
  for (uint64_t micro = 0; micro < 2; ++micro) {
    const Choices chosen{.expert = drawn_choices(sheet, arena, s, /*elsewhere=*/false),
                         .weight = sheet.drawn(arena, "weight", choices, micro),
                         .dweight = unwritten(arena, Dtype::F32, choices)};
    const Tensor inp = sheet.drawn(arena, "inp", tokens, micro);
    const ExpertActs acts = layers.acts(0, chosen);
    permute_forward(ctx, acts, inp, capacity);
    experts_forward(ctx, acts, w);
    unpermute_forward(ctx, out, acts);
    sheet.bits(fmt::format("expert/micro-batch {}: out", micro), out);
    // Another block has used the memory that blocks share.
    for (const Tensor& x : {acts.inp, acts.drows, acts.dfc, acts.dact})
      std::fill_n(x.data<float>(), x.size(), std::numeric_limits<float>::quiet_NaN());
    unpermute_backward(ctx, acts, sheet.drawn(arena, "dout", tokens, micro));
    experts_backward(ctx, dw, acts, inp, w, micro == 0 ? Into::Write : Into::Add);
    permute_backward(ctx, dinp, acts);
    sheet.bits(fmt::format("expert/micro-batch {}: dinp", micro), dinp);
    sheet.bits(fmt::format("expert/micro-batch {}: dfc", micro), dw.fc);
    sheet.bits(fmt::format("expert/micro-batch {}: dproj", micro), dw.proj_w);
  }
  if (capacity == 0) return;
  // Without the idea all rows that there is memory for are passed over: two gathers of C, and two
  // SwiGLUs of F and 2F.
  sheet.without_idea("work", 2 * sizes.M * (2 * sizes.C + 3 * sizes.F));
  sheet.count("work", kernels.elements());
}

// ---- the bias -----------------------------------------------------------------------------------

void run_bias(Sheet& sheet, const ChoiceSizes& s) {
  Arena arena;
  GptConfig config = preset("moe-nano");
  config.layers = 2;
  config.seq_len = s.T;
  config.experts = {.count = s.E, .chosen = s.k};
  BalanceOptions options;
  options.bias_rate = 0.125f;
  Balance balance(arena, config, options);
  const Routers routers(arena, config, 2 * s.B, s.B, {}, /*capacity=*/0);
  const Random random(sheet.seed(), "load");
  for (uint64_t step = 0; step < 3; ++step) {
    for (int64_t l = 0; l < 2; ++l) {
      // Expert 0 has the mean load, and the others have more or less. In the last step it has one
      // less, so that the mean is no whole number.
      const Tensor load = routers.load(l);
      std::fill_n(load.data<int32_t>(), load.size(), 20);
      if (step == 2) --*load.data<int32_t>();
      for (int64_t e = 1; e + 1 < s.E; e += 2) {
        const auto moved =
            static_cast<int32_t>(1 + random.below(9, step, static_cast<uint64_t>(l * s.E + e)));
        load.data<int32_t>()[e] += moved;
        load.data<int32_t>()[e + 1] -= moved;
      }
    }
    balance.count(routers);
    balance.update();
    for (size_t l = 0; l < 2; ++l)
      sheet.bits(fmt::format("bias/block {}: step {}", l, step), balance.bias(l));
  }
  const Balance never_moves(arena, config, {});
  never_moves.update();
  for (size_t l = 0; l < 2; ++l)
    sheet.bits(fmt::format("bias/block {}: rate 0, before the first load", l), never_moves.bias(l));
}

}  // namespace

void cases(Sheet& sheet) {
  const auto E = sheet.pick<int64_t>("experts", {5, 7, 8}),
             k = sheet.pick<int64_t>("taken", {3, 4});
  for (const char* what : {"ties", "a bias", "NaN"})
    sheet.run(fmt::format("{} of {} experts, {}", k, E, what),
              [&] { run_choices(sheet, what, E, k); });
  const ChoiceSizes s{.B = 3, .T = sheet.pick<int64_t>("tokens", {6, 9}), .E = E, .k = k};
  for (const int64_t capacity : {int64_t{0}, int64_t{2}})
    for (const bool elsewhere : {false, true})
      sheet.run(fmt::format("rows, capacity {}{}", capacity, elsewhere ? ", some elsewhere" : ""),
                [&] { run_rows(sheet, s, capacity, elsewhere); });
  for (const bool sigmoid : {false, true})
    for (const bool renormalize : {false, true}) {
      const RouteRule rule{.sigmoid = sigmoid, .renormalize = renormalize};
      const std::string name =
          fmt::format("{}{}", sigmoid ? "sigmoid" : "softmax", renormalize ? ", renormalized" : "");
      sheet.run("router, " + name, [&] { run_router(sheet, s, rule); });
      sheet.run("gradient, " + name, [&] {
        run_gradient(sheet, s, rule, 0, 0.3f);
        run_gradient(sheet, s, rule, 0.7f, 0);
      });
    }
  for (const int64_t capacity : {int64_t{0}, int64_t{2}})
    sheet.run(fmt::format("a layer, capacity {}", capacity),
              [&] { run_layer(sheet, s, capacity); });
  sheet.run("biases of two blocks", [&] { run_bias(sheet, s); });
  sheet.run("router, softmax, no bias", [&] { run_router(sheet, s, {}, /*has_bias=*/false); });
}

}  // namespace ladder::lab
