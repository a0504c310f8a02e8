// The update of one weight over some steps, and of a small model through its layout.
#include "labs/check.h"

#include <string>
#include <utility>
#include <vector>

#include "chapters/02_adamw/adamw.h"
#include "common/model/init.h"
#include "kernels/ref/adam_step.h"
#include "labs/kernel_counts.h"

namespace ladder::lab {
namespace {

/// Weights and moments of n elements after each of four steps, in double and then rounded: sums in
/// another order give the same floats.
void run_elements(Sheet& sheet, bool decoupled, float decay) {
  const auto n = sheet.pick<size_t>("n", {7, 12, 30});
  const AdamStep constants{.lr = sheet.pick("lr", {1e-1f, 3e-2f}),
                           .beta1 = sheet.pick("beta1", {0.5f, 0.75f}),
                           .beta2 = sheet.pick("beta2", {0.875f, 0.9375f}),
                           .eps = 0x1p-10f,
                           .weight_decay = decay,
                           .decoupled = decoupled,
                           .correction1 = 1,
                           .correction2 = 1};
  const std::vector<float> w = sheet.normals("w", static_cast<int64_t>(n));
  std::vector<float> found;
  for (size_t i = 0; i < n; ++i) {
    double weight = w[i], m = 0, v = 0, keep1 = 1, keep2 = 1;
    for (uint64_t t = 1; t <= 4; ++t) {
      AdamStep step = constants;
      step.correction1 = static_cast<float>(1 - (keep1 *= constants.beta1));
      step.correction2 = static_cast<float>(1 - (keep2 *= constants.beta2));
      const double g = sheet.normals("g", static_cast<int64_t>(n), t)[i];
      ref::adam_step(weight, m, v, g, step);
      for (const double x : {weight, m, v}) found.push_back(static_cast<float>(x));
    }
  }
  sheet.bits("update", found);
}

/// One step in float, in which the square of the gradient is 0. All numbers are powers of two.
void run_float(Sheet& sheet) {
  float w = 0, m = 0, v = 0;  // lr 1, betas 1/2, eps 2^-90, no decay, corrections 1
  ref::adam_step(w, m, v, 0x1p-80f, {1, 0.5f, 0.5f, 0x1p-90f, 0, true, 1, 1});
  sheet.bits("update", std::vector<float>{w, m, v});
}

/// Three updates of a model; biases and gains among its parameters do not decay.
void run_model(Sheet& sheet, bool decoupled) {
  const GptConfig gpt{.name = "lab",
                      .layers = sheet.pick<int64_t>("layers", {1, 2}),
                      .heads = 1,
                      .channels = sheet.pick<int64_t>("channels", {8, 12}),
                      .seq_len = 4,
                      .positions = 5,
                      .vocab = 11,
                      .padded_vocab = 16};
  CountedKernels kernels;
  kernels.count<&Kernels::adamw_update>();
  Arena arena;
  const ParamLayout layout(gpt);
  AdamWOptions options;
  options.weight_decay = sheet.pick("decay", {0.5f, 0.25f});
  options.beta2 = sheet.pick("beta2 of the model", {0.95f, 0.99f});
  AdamW adamw(arena, layout, options, decoupled);
  const Tensor params = arena.zeros(Mem::Param, "params", Dtype::F32, {layout.size()}),
               grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {layout.size()});
  init_params(kernels.ctx(), params, layout, sheet.seed());
  for (int64_t t = 1; t <= 3; ++t) {
    const auto drawn = sheet.normals("grads", layout.size(), static_cast<uint64_t>(t));
    for (const ParamSpec& spec : layout.specs()) {
      const Tensor part = layout.tensor(grads, spec);
      for (int64_t i = 0; i < part.size(); ++i)
        part.data<float>()[i] = drawn[static_cast<size_t>(spec.offset + i)];
    }
    adamw.step(kernels.ctx(), params, grads, 1e-2f, t);
  }
  sheet.bits("model", params);
  sheet.without_idea("calls", CountedKernels::elements());
  sheet.count("calls", CountedKernels::calls());
}

/// The gradients of all tensors at update t.
void run_constants(Sheet& sheet) {
  const ParamLayout layout(preset("nano"));
  AdamWOptions options;
  // Their powers are not exact: a power in float, or another library's, shows here.
  options.beta1 = sheet.pick("beta1 of the constants", {0.9f, 0.95f});
  options.beta2 = sheet.pick("beta2 of the constants", {0.99f, 0.999f});
  for (const char* name : {"transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                           "transformer.h.0.ln_1.weight", "transformer.wte.weight"}) {
    const ParamSpec& spec = layout.spec(name);
    for (const int64_t t : {1, 2, 40}) {
      const AdamStep step = options.step_of(spec, 0.25f, t, true);
      sheet.text(fmt::format("constants/{}, t {}", name, t),
                 fmt::format("lr {} decay {} corrections {} {}", step.lr, step.weight_decay,
                             step.correction1, step.correction2));
    }
  }
}

}  // namespace

void cases(Sheet& sheet) {
  for (const auto& [decoupled, decay] : {std::pair{true, 0.0f}, {true, 0.5f}, {false, 0.5f}})
    sheet.run(fmt::format("{}, decay {}", decoupled ? "adamw" : "adam", decay),
              [&] { run_elements(sheet, decoupled, decay); });
  sheet.run("in float", [&] { run_float(sheet); });
  sheet.run("constants", [&] { run_constants(sheet); });
  for (const bool decoupled : {true, false})
    sheet.run(fmt::format("a model, {}", decoupled ? "adamw" : "adam"),
              [&] { run_model(sheet, decoupled); });
}

}  // namespace ladder::lab
