// Runs backward() of chapter 01 on a small model: gradients of one batch, and of a second one that
// is added to the first. Then checks updates by Sgd.
#include "labs/check.h"

#include <string>
#include <vector>

#include "labs/kernel_counts.h"

// What a student writes stands in the chapter's program. Its main() has another name here.
#define main chapter_main
#include "chapters/01_sgd/main.cpp"
#undef main

namespace ladder::lab {
namespace {

struct Case {
  GptConfig gpt;
  int64_t batch;
};

/// Tokens (B,T), I32, that depend on the seed.
Tensor words(const Sheet& sheet, Arena& arena, const Case& c, const char* what, uint64_t step) {
  const Tensor all = arena.alloc(Mem::Workspace, what, Dtype::I32, {c.batch, c.gpt.seq_len});
  const Random random(sheet.seed() + step, what);
  for (int64_t i = 0; i < all.size(); ++i)
    all.data<int32_t>()[i] = static_cast<int32_t>(
        random.below(static_cast<uint64_t>(c.gpt.vocab), static_cast<uint64_t>(i)));
  return all;
}

/// Kernels that pass over activations and gradients, and multiply nothing.
void count_passes(CountedKernels& kernels) {
  kernels.count<&Kernels::norm_forward>();
  kernels.count<&Kernels::norm_backward_input>();
  kernels.count<&Kernels::norm_backward_weight>();
  kernels.count<&Kernels::bias_backward>();
  kernels.count<&Kernels::gelu_forward>();
  kernels.count<&Kernels::gelu_backward>();
  kernels.count<&Kernels::swiglu_forward>();
  kernels.count<&Kernels::swiglu_backward>();
  kernels.count<&Kernels::rope>();
  kernels.count<&Kernels::residual_forward>();
  kernels.count<&Kernels::embed_backward>();
  kernels.count<&Kernels::add>();
  kernels.count<&Kernels::cast>();
  kernels.count<&Kernels::scale>();
}

/// Gradients of one batch; or of two, where the second is added and nothing is counted.
void gradients(Sheet& sheet, const Case& c, uint64_t batches) {
  const ParamLayout layout(c.gpt);
  CountedKernels kernels;
  count_passes(kernels);
  Ctx& ctx = kernels.ctx();
  int64_t flops = 0, flops_forward = 0, flops_backward = 0, written = 0;
  ctx.flops = &flops;
  Arena arena;
  const Tensor params = arena.zeros(Mem::Param, "params", Dtype::F32, {layout.size()});
  const Tensor grads = sheet.drawn(arena, "what was there", {layout.size()});
  const Tensor losses = arena.zeros(Mem::Activation, "losses", Dtype::F32, {c.batch});
  const GptTensors w = layout.view(params), dw = layout.view(grads);
  const Activations acts = alloc_activations(arena, c.gpt, c.batch);
  const ActGrads dacts = alloc_act_grads(arena, c.gpt, c.batch);
  std::ranges::transform(sheet.normals("weights", layout.size()), params.data<float>(),
                         [](float x) { return 0.3f * x; });
  for (uint64_t step = 0; step < batches; ++step) {
    const Tensor tokens = words(sheet, arena, c, "tokens", step);
    flops = 0;
    forward(ctx, w, acts, tokens);
    head_loss_and_gradient(ctx, losses, acts.logits, words(sheet, arena, c, "targets", step),
                           c.gpt.vocab, 0.1f);
    flops_forward = flops;
    const int64_t before = CountedKernels::elements();
    backward(ctx, w, dw, acts, dacts, tokens, step == 0 ? Into::Write : Into::Add);
    written = CountedKernels::elements() - before;
    flops_backward = flops - flops_forward;
  }
  // Added gradients are right as a whole: one that is overwritten is the error to be found.
  const char* place = batches == 1 ? "gradients/" : "added/a second batch: ";
  for (const ParamSpec& spec : layout.specs())
    sheet.bits(place + spec.name, layout.tensor(grads, spec));
  if (batches > 1) return;
  // A backward pass that uses nothing of forward computes forward again. One that hands no buffer
  // on makes a copy for each operand of each residual.
  const int64_t stream = c.batch * c.gpt.seq_len * c.gpt.channels;
  sheet.without_idea("flops", flops_backward + flops_forward);
  sheet.count("flops", flops_backward);
  sheet.without_idea("passes", written + 4 * c.gpt.layers * stream);
  sheet.count("passes", written);
}

void update(Sheet& sheet, const GptConfig& gpt, const SgdOptions& options) {
  const ParamLayout layout(gpt);
  CountedKernels kernels;
  Arena arena;
  const Tensor params = arena.zeros(Mem::Param, "params", Dtype::F32, {layout.size()});
  const Tensor grads = arena.zeros(Mem::Grad, "grads", Dtype::F32, {layout.size()});
  Sgd sgd(arena, layout, options);
  sheet.draw(params, "weights");
  for (uint64_t step = 0; step < 3; ++step) {
    sheet.draw(grads, "gradients", step);
    sgd.step(kernels.ctx(), params, grads, step == 0 ? 0.5f : 0.25f);
    sheet.bits(fmt::format("update/step {}", step), params);
  }
}

}  // namespace

void cases(Sheet& sheet) {
  const GptConfig gpt{.name = "lab",
                      .layers = 2,
                      .heads = 2,
                      .channels = sheet.pick<int64_t>("channels", {8, 12}),
                      .seq_len = sheet.pick<int64_t>("tokens", {3, 5}),
                      .positions = 6,
                      .vocab = 11,
                      .padded_vocab = 13};
  for (const int64_t layers : {1, 3}) {
    Case c{.gpt = gpt, .batch = sheet.pick<int64_t>("batch", {2, 3})};
    c.gpt.layers = layers;
    sheet.run(fmt::format("{} blocks", layers), [&] { gradients(sheet, c, 1); });
    sheet.run(fmt::format("{} blocks, two batches", layers), [&] { gradients(sheet, c, 2); });
  }
  for (const SgdOptions& options :
       {SgdOptions{}, SgdOptions{.momentum = 0.9f}, SgdOptions{.momentum = 0.9f, .nesterov = true}})
    sheet.run(fmt::format("momentum {}{}", options.momentum, options.nesterov ? ", Nesterov" : ""),
              [&] { update(sheet, gpt, options); });
}

}  // namespace ladder::lab
