// 26_packing: several documents in a row. Each is a sequence of its own, wherever it lies, and
// packing them changes no bit.

#include "chapters/02_adamw/optimizer.h"
#include "chapters/03_schedules/schedule.h"
#include "chapters/04_clipping/accumulate.h"
#include "chapters/04_clipping/clip.h"
#include "chapters/05_mixed_precision/loss_scaler.h"
#include "chapters/05_mixed_precision/precision.h"
#include "chapters/06_checkpointing/recompute.h"
#include "chapters/26_packing/bundles.h"
#include "chapters/26_packing/packed_text.h"
#include "common/data/text.h"
#include "common/model/activations.h"
#include "common/model/init.h"
#include "common/model/measure.h"
#include "common/run/backend.h"
#include "common/run/run.h"
#include "common/run/run_main.h"
#include "common/run/sampler.h"

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
  PrecisionOptions precision;
  LossScaleOptions loss_scale;
  RecomputeOptions recompute;
  PackOptions packing;
};

Options parse_options(int argc, char** argv) {
  Options o;
  CommandLine("26_packing: documents in rows")
      .read(argc, argv, o.run, o.sgd, o.optimizer, o.schedule, o.accumulate, o.clip, o.precision,
            o.loss_scale, o.recompute, o.packing);
  o.run.refuse_ranks();
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

/// This program holds the whole model, and the activations of one micro-batch of bundles.
struct Layout {
  const Options& o;

  // In this order: members use those above.
  GptConfig gpt = o.run.gpt();
  ParamLayout params{gpt};
  int64_t batch = o.run.batch;           ///< B, bundles of a step
  int64_t tokens = batch * gpt.seq_len;  ///< of a step, if its rows were full
  Schedule schedule{o.schedule, o.run.lr, o.run.steps, tokens};
  int64_t micro = o.accumulate.micro(batch);           ///< MBS, bundles of a micro-batch
  int64_t rows = micro * o.packing.rows(gpt.seq_len);  ///< of a micro-batch at most
  int64_t GA = batch / micro;                          ///< micro-batches of a step
  Recompute recompute{o.recompute.policy, gpt.layers};
  ActivationPlan acts = recompute.plan(o.precision.plan());

  explicit Layout(const Options& o_) : o(o_) {}
};

// ---- 3. memory ----------------------------------------------------------------------------------

struct Memory {
  const Options& o;
  const Layout& layout;

  std::unique_ptr<Device> device = open_device(o.run);  // null: kernels run on the host
  Arena arena{device.get()};
  StepFlops flops = {};  // of a step's products
  Ctx ctx = make_ctx(o.run, arena, device.get(), {.flops = &flops.all});
  // Flat buffers: the weights that the optimizer updates, and those that the model reads.
  Weights weights{arena, layout.params.size(), o.precision};
  GptTensors w = layout.params.view(weights.compute);  // the latter, seen as a model
  // Gradients, in as many buffers as the micro-steps take.
  GradTree grads{arena, layout.params, o.accumulate, layout.GA};
  Optimizer optimizer{arena, layout.params, o.sgd, o.optimizer};
  LossScaler scaler{o.loss_scale, o.precision};
  BundleBatch batch{arena, o.packing, layout.batch, layout.micro, layout.gpt.seq_len};
  RowCursor place{o.packing, layout.gpt.seq_len};
  PackCounts packed = {}, last = {};  // counts of all steps, and of the last step
  Activations acts = alloc_activations(arena, layout.gpt, layout.rows, layout.acts);
  ActGrads dacts = alloc_act_grads(arena, layout.gpt, layout.rows, layout.acts);
  // Memory of grad_norm: digits of a sum of squares, which ranks add exactly (docs/same_bits.md).
  Tensor limbs = arena.shared(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});
};

/// The bytes that Memory will take, by the formulas of the READMEs.
MemoryBytes predict(const Options& o, const Layout& layout) {
  const int64_t P = layout.params.size(), rows = layout.rows;
  MemoryBytes bytes;
  bytes[Mem::Param] = Weights::param_bytes(P, o.precision);
  bytes[Mem::Master] = Weights::master_bytes(P, o.precision);
  bytes[Mem::Optim] = Optimizer::bytes(layout.params, o.sgd, o.optimizer);
  // A token, its target and its position: 12 bytes. A loss and two borders: 12.
  bytes[Mem::Activation] = activation_bytes(layout.gpt, rows, layout.acts) +
                           BundleBatch::bytes(o.packing, layout.batch, layout.gpt.seq_len);
  bytes[Mem::Workspace] =
      act_grad_bytes(layout.gpt, rows, layout.acts) + 8 * kLimbs + scratch_bytes(o.run);
  GradTree::add_bytes(bytes, layout.params, o.accumulate, layout.GA);
  return bytes;
}

// ---- 4. data ------------------------------------------------------------------------------------

/// All that a checkpoint holds.
TrainingState training_state(const Layout& layout, Memory& m) {
  return {.layout = layout.params,
          .params = m.weights.master,
          .optim = m.optimizer.tensors(),
          .others{named_state("optimizer", m.optimizer), named_state("loss_scale", m.scaler),
                  named_state("documents", m.place)}};
}

/// Initial weights, or those of a checkpoint. Returns the first step to take.
int64_t start(const Options& o, const Layout& layout, Memory& m) {
  const int64_t step = load_or_init(m.ctx, o.run.load, o.run.seed, training_state(layout, m));
  m.weights.refresh(m.ctx);
  return step;
}

// ---- 5. step ------------------------------------------------------------------------------------

/// Forward of block l, which reads a.stream(l).
void forward_block(Memory& m, const Activations& a, int64_t l) {
  const Ctx& ctx = m.ctx;
  const BlockTensors& p = m.w.blocks[l];
  const BlockActs& s = a.blocks[l];
  norm_forward(ctx, s.norm1, s.stat1, a.stream(l), p.norm1);
  attn_forward(ctx, a.product, s.attn, s.norm1, p.attn);
  residual_forward(ctx, s.mid, a.stream(l), a.product, p.residual1_b);

  norm_forward(ctx, s.norm2, s.stat2, s.mid, p.norm2);
  mlp_forward(ctx, a.product, s.mlp, s.norm2, p.mlp);
  residual_forward(ctx, s.out, s.mid, a.product, p.residual2_b);
}

/// From `tokens` (R,T) to the last norm. What backward needs stays in `a`, or is computed again.
void forward(Memory& m, const Activations& a, Tensor tokens) {
  const auto L = std::ssize(m.w.blocks);
  embed_forward(m.ctx, a.embed, tokens, m.w.embed);
  for (int64_t l = 0; l < L; ++l) {
    // If recomputation lets blocks share memory, block l overwrites what forward has kept of block
    // l - Recompute::sets().
    forward_block(m, a, l);
  }
  norm_forward(m.ctx, a.norm, a.stat, a.stream(L), m.w.norm);
}

/// The head, forward and backward: losses of `targets` (R,T), one for each turn, the gradient of
/// its input into d.branch, and that of its weights.
void head(Memory& m, const GptTensors& dw, const Activations& a, const ActGrads& d, Tensor losses,
          Tensor targets, int64_t vocab, float scale, Into into) {
  head_forward(m.ctx, a.logits, a.norm, m.w.head_w);
  head_loss_and_gradient(m.ctx, losses, a.logits, targets, vocab, scale);
  head_backward_input(m.ctx, d.branch, a.logits, m.w.head_w);
  head_backward_weight(m.ctx, dw.head_w, a.logits, a.norm, into);
}

/// Before backward of block l: computes again what forward has dropped of it and of its segment.
void recompute_segment(Memory& m, const Activations& a, const Recompute& recompute, int64_t l) {
  const StepFlops::Recomputing counted(m.flops);
  const Range segment = recompute.segment_before(l);
  for (int64_t b = segment.begin; b < segment.end; ++b) forward_block(m, a, b);
  recompute_parts(m.ctx, recompute.parts_before(l), a.blocks[l], a.stream(l), m.w.blocks[l]);
}

/// Gradients of all parameters but the head's into `dw`, from d.branch, which `head` has written.
void backward(Memory& m, const Recompute& recompute, const GptTensors& dw, const Activations& a,
              const ActGrads& d, Tensor tokens, Into into) {
  const Ctx& ctx = m.ctx;
  const GptTensors& w = m.w;
  const auto L = std::ssize(w.blocks);
  norm_backward_input(ctx, d.stream, d.branch, a.stream(L), a.stat, w.norm);
  norm_backward_weight(ctx, dw.norm, d.branch, a.stream(L), a.stat, into);

  // d.stream: the gradient of the residual stream. A residual hands it on to both its operands.
  // d.branch: the gradient of what attn, mlp or the head has read. d.norm: of what a norm has read.
  for (int64_t l = L; l-- > 0;) {  // the last block first
    recompute_segment(m, a, recompute, l);

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
StepRecord train_step(const Options& o, const Layout& layout, Memory& m, PackedText& text, Log& log,
                      int64_t step) {
  const int64_t MBS = layout.micro, GA = layout.GA;
  m.flops = {};
  text.draw(m.batch, m.place, o.run.seed, step);
  m.last = m.batch.counts();
  m.packed += m.last;
  const int64_t targets = count_targets(m.batch.rows());
  // The loss is a mean over all targets of the batch, so each target weighs 1 / targets. FP16
  // multiplies this weight by the loss scale, a power of two.
  const float scale = m.scaler.scale() / static_cast<float>(targets);

  for (int64_t k = 0; k < GA; ++k) {
    const Bundles part = m.batch.slice(m.ctx, k * MBS, MBS);
    const Activations acts = m.acts.first(part.row_count());
    const ActGrads dacts = m.dacts.first(part.row_count());
    // From here on every kernel takes a document for a sequence.
    m.ctx.documents = part.documents;
    m.grads.begin(k);
    forward(m, acts, part.rows.tokens);
    head(m, m.grads.view(), acts, dacts, part.losses, part.rows.targets, layout.gpt.vocab, scale,
         m.grads.into());
    backward(m, layout.recompute, m.grads.view(), acts, dacts, part.rows.tokens, m.grads.into());
    m.grads.end(m.ctx, k, GA);
  }
  m.ctx.documents = {};
  const Tensor grads = m.grads.finish(m.ctx);
  m.scaler.unscale(m.ctx, grads);
  const float loss = mean_loss(m.ctx, m.batch.losses(), targets);
  const double norm = grad_norm(m.ctx, grads, layout.params, m.limbs);

  const float lr = layout.schedule.lr(step);
  const std::string bad = m.scaler.end_step(loss, norm);
  if (bad.empty()) {
    clip_global_norm(m.ctx, grads, norm, o.clip.clip);
    m.optimizer.step(m.ctx, m.weights.master, grads, lr);
    m.weights.refresh(m.ctx);
  } else {
    log.skipped(step, bad);
  }
  return {.step = step, .loss = loss, .grad_norm = norm, .lr = lr, .tokens = targets};
}

/// Mean loss of the held-out text.
float validate(const Layout& layout, Memory& m, const PackedText& text) {
  BundleValidation v(m.ctx, text, m.batch, layout.micro);
  while (v.next()) {
    const Bundles& part = v.bundles();
    const Activations acts = m.acts.first(part.row_count());
    m.ctx.documents = part.documents;
    forward(m, acts, part.rows.tokens);
    head_forward(m.ctx, acts.logits, acts.norm, m.w.head_w);
    head_loss(m.ctx, part.losses, acts.logits, part.rows.targets, layout.gpt.vocab);
  }
  m.ctx.documents = {};
  return v.mean();
}

void train(const Options& o, const Layout& layout, Memory& m, PackedText& text, Run& run) {
  for (int64_t step = start(o, layout, m); run.goes_on(step); ++step) {
    run.begin_step();
    const StepRecord record = train_step(o, layout, m, text, run.log, step);
    run.end_step(record);
    if (run.tracing()) run.log.trace(record, param_hash(m.ctx, m.weights.master, layout.params));
    if (run.eval_due(step)) run.log.eval(step, validate(layout, m, text));
    if (run.save_due(step)) run.saver.save(training_state(layout, m), step + 1);
  }
}

// ---- 6. report ----------------------------------------------------------------------------------

/// Text that the model writes, a token at a time.
std::string sample(const Options& o, const Layout& layout, Memory& m) {
  Sampler sampler(o.run.sampling(layout.gpt));
  const Tensor tokens = m.batch.rows().tokens.first(1);
  const Activations acts = m.acts.first(1);
  while (sampler.next(tokens)) {
    forward(m, acts, tokens);
    head_forward(m.ctx, acts.logits, acts.norm, m.w.head_w);
    sampler.choose(m.ctx, acts.logits);
  }
  return sampler.text();
}

void run(const Options& o) {
  const Layout layout(o);
  const RunPlan plan{.chapter = "26_packing",
                     .gpt = layout.gpt,
                     .layout = run_layout(o.run, layout.micro),  // for the report
                     .predicted = predict(o, layout)};
  if (o.run.plan_only) return show_policies(o.run, plan, layout.recompute, o.precision.plan());
  PackedText text(o.run.text(layout.gpt), o.packing);
  Memory m{o, layout};
  Run run(o.run, plan, m.arena, m.ctx);
  // For bits per byte: documents need a count of their own.
  run.log.count_targets_with(text.targets());
  train(o, layout, m, text, run);
  m.scaler.report(run.log.extra());
  report_packing(run.log, m.packed, layout.gpt.seq_len);
  report_recompute(run.log, m.flops, layout.recompute.extra_flops(layout.gpt, m.last.rows));
  run.finish(validate(layout, m, text));
  if (o.run.sample > 0) run.log.sample(sample(o, layout, m));
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] { ladder::run(ladder::parse_options(argc, argv)); });
}
