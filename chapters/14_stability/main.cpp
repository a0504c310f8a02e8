// 14_stability: steps that do no harm. Each row of a gradient is clipped by the weights it would
// change, and a guard skips batches that would throw the model off.

#include "chapters/02_adamw/optimizer.h"
#include "chapters/03_schedules/schedule.h"
#include "chapters/04_clipping/accumulate.h"
#include "chapters/04_clipping/clip.h"
#include "chapters/14_stability/adaptive_clip.h"
#include "chapters/14_stability/spike_guard.h"
#include "common/data/text.h"
#include "common/model/activations.h"
#include "common/model/init.h"
#include "common/model/measure.h"
#include "common/run/backend.h"
#include "common/run/run.h"
#include "common/run/run_main.h"
#include "common/run/sampler.h"
#include "common/run/validation.h"

namespace ladder {
namespace {

// ---- 1. options ---------------------------------------------------------------------------------

struct Options {
  RunOptions run;
  SgdOptions sgd;
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  AccumulateOptions accumulate;
  ClipOptions clip;
  AdaptiveClipOptions agc;
  SpikeGuardOptions spike_guard;
};

Options parse_options(int argc, char** argv) {
  Options o;
  CommandLine("14_stability: clipping row by row, and a guard against spikes")
      .read(argc, argv, o.run, o.sgd, o.optimizer, o.schedule, o.accumulate, o.clip, o.agc,
            o.spike_guard);
  o.run.refuse_ranks();
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

/// This program holds the whole model, and the activations of one micro-batch.
struct Layout {
  const Options& o;

  // In this order: members use those above.
  GptConfig gpt = o.run.gpt();
  ParamLayout params{gpt};
  int64_t batch = o.run.batch;           ///< B, sequences of a step
  int64_t tokens = batch * gpt.seq_len;  ///< of a step
  Schedule schedule{o.schedule, o.run.lr, o.run.steps, tokens};
  int64_t micro = o.accumulate.micro(batch);  ///< MBS, sequences of a micro-batch
  int64_t GA = batch / micro;                 ///< micro-batches of a step

  explicit Layout(const Options& o_) : o(o_) {}
};

// ---- 3. memory ----------------------------------------------------------------------------------

struct Memory {
  const Options& o;
  const Layout& layout;

  std::unique_ptr<Device> device = open_device(o.run);  // null: kernels run on the host
  Arena arena{device.get()};
  Ctx ctx = make_ctx(o.run, arena, device.get());
  // All parameters, in one flat buffer.
  Tensor params = arena.alloc(Mem::Param, "params", Dtype::F32, {layout.params.size()});
  GptTensors w = layout.params.view(params);  // the same, seen as a model
  // Gradients, in as many buffers as the micro-steps take.
  GradTree grads{arena, layout.params, o.accumulate, layout.GA};
  Optimizer optimizer{arena, layout.params, o.sgd, o.optimizer};
  AdaptiveClip agc{arena, layout.params, o.agc};
  SpikeGuard guard{o.spike_guard};
  Batch batch = alloc_batch(arena, layout.batch, layout.gpt.seq_len);
  // (B): a loss for each sequence, in memory shared with the host, which reads it.
  Tensor losses = arena.shared(Mem::Activation, "losses", Dtype::F32, {layout.batch});
  Activations acts = alloc_activations(arena, layout.gpt, layout.micro);
  ActGrads dacts = alloc_act_grads(arena, layout.gpt, layout.micro);
  // Memory of grad_norm: digits of a sum of squares, which ranks add exactly (docs/same_bits.md).
  Tensor limbs = arena.shared(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});
};

/// The bytes that Memory will take, by the formulas of the READMEs.
MemoryBytes predict(const Options& o, const Layout& layout) {
  const int64_t P = layout.params.size(), B = layout.batch, MBS = layout.micro,
                T = layout.gpt.seq_len;
  MemoryBytes bytes;
  bytes[Mem::Param] = 4 * P;
  bytes[Mem::Optim] = Optimizer::bytes(layout.params, o.sgd, o.optimizer);
  // A token and its target: 8 bytes. A loss: 4.
  bytes[Mem::Activation] = activation_bytes(layout.gpt, MBS) + 8 * B * T + 4 * B;
  bytes[Mem::Workspace] = act_grad_bytes(layout.gpt, MBS) + 8 * kLimbs + scratch_bytes(o.run);
  bytes[Mem::Workspace] += AdaptiveClip::bytes(layout.params, o.agc);
  GradTree::add_bytes(bytes, layout.params, o.accumulate, layout.GA);
  return bytes;
}

// ---- 4. data ------------------------------------------------------------------------------------

/// All that a checkpoint holds.
TrainingState training_state(const Layout& layout, Memory& m) {
  return {.layout = layout.params,
          .params = m.params,
          .optim = m.optimizer.tensors(),
          .others{named_state("optimizer", m.optimizer), named_state("spike_guard", m.guard)}};
}

/// Initial weights, or those of a checkpoint. Returns the first step to take.
int64_t start(const Options& o, const Layout& layout, Memory& m) {
  return load_or_init(m.ctx, o.run.load, o.run.seed, training_state(layout, m));
}

// ---- 5. step ------------------------------------------------------------------------------------

/// Writes the logits of `tokens` (B,T) into a.logits. What backward needs stays in `a`, too.
void forward(const Ctx& ctx, const GptTensors& w, const Activations& a, Tensor tokens) {
  const auto L = std::ssize(w.blocks);
  embed_forward(ctx, a.embed, tokens, w.embed);
  for (int64_t l = 0; l < L; ++l) {
    const BlockTensors& p = w.blocks[l];
    const BlockActs& s = a.blocks[l];
    norm_forward(ctx, s.norm1, s.stat1, a.stream(l), p.norm1);
    attn_forward(ctx, a.product, s.attn, s.norm1, p.attn);
    residual_forward(ctx, s.mid, a.stream(l), a.product, p.residual1_b);

    norm_forward(ctx, s.norm2, s.stat2, s.mid, p.norm2);
    mlp_forward(ctx, a.product, s.mlp, s.norm2, p.mlp);
    residual_forward(ctx, s.out, s.mid, a.product, p.residual2_b);
  }
  norm_forward(ctx, a.norm, a.stat, a.stream(L), w.norm);
  head_forward(ctx, a.logits, a.norm, w.head_w);
}

/// Puts gradients of all parameters into `dw`. By now a.logits holds the gradient of the logits.
void backward(const Ctx& ctx, const GptTensors& w, const GptTensors& dw, const Activations& a,
              const ActGrads& d, Tensor tokens, Into into) {
  const auto L = std::ssize(w.blocks);
  head_backward_input(ctx, d.branch, a.logits, w.head_w);
  head_backward_weight(ctx, dw.head_w, a.logits, a.norm, into);
  norm_backward_input(ctx, d.stream, d.branch, a.stream(L), a.stat, w.norm);
  norm_backward_weight(ctx, dw.norm, d.branch, a.stream(L), a.stat, into);

  // d.stream: the gradient of the residual stream. A residual hands it on to both its operands.
  // d.branch: the gradient of what attn, mlp or the head has read. d.norm: of what a norm has read.
  for (int64_t l = L; l-- > 0;) {  // the last block first
    const BlockTensors& p = w.blocks[l];
    const BlockTensors& g = dw.blocks[l];
    const BlockActs& s = a.blocks[l];
    residual_backward_weight(ctx, g.residual2_b, d.stream, into);
    mlp_backward_input(ctx, d.branch, d.mlp, d.stream, s.mlp, p.mlp);
    mlp_backward_weight(ctx, g.mlp, d.mlp, d.stream, s.norm2, s.mlp, into);
    norm_backward_input(ctx, d.norm, d.branch, s.mid, s.stat2, p.norm2);
    norm_backward_weight(ctx, g.norm2, d.branch, s.mid, s.stat2, into);
    // The branch has read the stream, too: what came back through its norm is added.
    residual_backward_input(ctx, d.stream, d.norm);

    residual_backward_weight(ctx, g.residual1_b, d.stream, into);
    attn_backward_input(ctx, d.branch, d.attn, d.stream, s.attn, p.attn);
    attn_backward_weight(ctx, g.attn, d.attn, d.stream, s.norm1, s.attn, into);
    norm_backward_input(ctx, d.norm, d.branch, a.stream(l), s.stat1, p.norm1);
    norm_backward_weight(ctx, g.norm1, d.branch, a.stream(l), s.stat1, into);
    residual_backward_input(ctx, d.stream, d.norm);
  }
  embed_backward_weight(ctx, dw.embed, d.stream, tokens, into);
}

/// One batch: loss, gradients, update.
StepRecord train_step(const Options& o, const Layout& layout, Memory& m, const Text& text, Log& log,
                      int64_t step) {
  const int64_t MBS = layout.micro, GA = layout.GA;
  text.draw(m.batch, o.run.seed, step);
  o.spike_guard.inject(m.batch, o.run.seed, step);
  const int64_t targets = count_targets(m.batch);
  // The loss is a mean over all targets of the batch, so each target weighs 1 / targets.
  const float scale = 1.0f / static_cast<float>(targets);

  for (int64_t k = 0; k < GA; ++k) {
    const Batch part = m.batch.slice(k * MBS, MBS);
    m.grads.begin(k);
    forward(m.ctx, m.w, m.acts, part.tokens);
    head_loss_and_gradient(m.ctx, m.losses.slice(k * MBS, MBS), m.acts.logits, part.targets,
                           layout.gpt.vocab, scale);
    backward(m.ctx, m.w, m.grads.view(), m.acts, m.dacts, part.tokens, m.grads.into());
    m.grads.end(m.ctx, k, GA);
  }
  const Tensor grads = m.grads.finish(m.ctx);
  const float loss = mean_loss(m.ctx, m.losses, targets);
  const double norm = grad_norm(m.ctx, grads, layout.params, m.limbs);

  const float lr = layout.schedule.lr(step);
  const std::string bad = m.guard.judge(loss, norm);
  if (bad.empty()) {
    const bool clipped = m.agc.apply(m.ctx, grads, m.params);
    const double norm_left = clipped ? grad_norm(m.ctx, grads, layout.params, m.limbs) : norm;
    clip_global_norm(m.ctx, grads, norm_left, o.clip.clip);
    m.optimizer.step(m.ctx, m.params, grads, lr);
  } else {
    log.skipped(step, bad);
  }
  return {.step = step, .loss = loss, .grad_norm = norm, .lr = lr, .tokens = layout.tokens};
}

/// Mean loss of the held-out text.
float validate(const Layout& layout, Memory& m, const Text& text) {
  Validation v(m.ctx, /*comm=*/nullptr, text, m.batch, m.losses, layout.micro);
  while (v.next()) {
    const Activations acts = m.acts.first(v.count());
    forward(m.ctx, m.w, acts, v.batch().tokens);
    head_loss(m.ctx, v.losses(), acts.logits, v.batch().targets, layout.gpt.vocab);
  }
  return v.mean();
}

void train(const Options& o, const Layout& layout, Memory& m, const Text& text, Run& run) {
  for (int64_t step = start(o, layout, m); run.goes_on(step); ++step) {
    run.begin_step();
    const StepRecord record = train_step(o, layout, m, text, run.log, step);
    run.end_step(record);
    if (run.tracing()) run.log.trace(record, param_hash(m.ctx, m.params, layout.params));
    if (run.eval_due(step)) run.log.eval(step, validate(layout, m, text));
    if (run.save_due(step)) run.saver.save(training_state(layout, m), step + 1);
  }
}

// ---- 6. report ----------------------------------------------------------------------------------

/// Text that the model writes, a token at a time.
std::string sample(const Options& o, const Layout& layout, Memory& m) {
  Sampler sampler(o.run.sampling(layout.gpt));
  const Tensor tokens = m.batch.tokens.first(1);
  const Activations acts = m.acts.first(1);
  while (sampler.next(tokens)) {
    forward(m.ctx, m.w, acts, tokens);
    sampler.choose(m.ctx, acts.logits);
  }
  return sampler.text();
}

void run(const Options& o) {
  const Layout layout(o);
  const RunPlan plan{.chapter = "14_stability",
                     .gpt = layout.gpt,
                     .layout = run_layout(o.run, layout.micro),  // for the report
                     .predicted = predict(o, layout)};
  if (o.run.plan_only) return show_plan(o.run, plan);
  const Text text(o.run.text(layout.gpt));
  Memory m{o, layout};
  Run run(o.run, plan, m.arena, m.ctx);
  train(o, layout, m, text, run);
  run.finish(validate(layout, m, text));
  if (o.run.sample > 0) run.log.sample(sample(o, layout, m));
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] { ladder::run(ladder::parse_options(argc, argv)); });
}
