// 16_fp8: the factors of a block's linear layers in 8 bits, each tensor with a scale of its own
// that follows what was in it, on all ranks.

#include "chapters/02_adamw/optimizer.h"
#include "chapters/03_schedules/schedule.h"
#include "chapters/04_clipping/accumulate.h"
#include "chapters/04_clipping/clip.h"
#include "chapters/05_mixed_precision/loss_scaler.h"
#include "chapters/05_mixed_precision/precision.h"
#include "chapters/06_checkpointing/recompute.h"
#include "chapters/07_ddp/ddp.h"
#include "chapters/16_fp8/fp8.h"
#include "common/data/text.h"
#include "common/model/activations.h"
#include "common/model/init.h"
#include "common/model/measure.h"
#include "common/run/backend.h"
#include "common/run/run.h"
#include "common/run/run_main.h"
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
  Fp8Options precision;
  LossScaleOptions loss_scale;
  RecomputeOptions recompute;
  DdpOptions ddp;
};

Options parse_options(int argc, char** argv) {
  Options o;
  CommandLine("16_fp8: linear layers in 8 bits")
      .read(argc, argv, o.run, o.sgd, o.optimizer, o.schedule, o.accumulate, o.clip, o.precision,
            o.loss_scale, o.recompute, o.ddp);
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

/// Every rank holds the whole model, and the activations of a micro-batch of its share.
struct Layout {
  const Options& o;

  // In this order: members use those above.
  GptConfig gpt = o.run.gpt();
  ParamLayout params{gpt};
  int64_t batch = o.run.batch;           ///< B, sequences of a step
  int64_t tokens = batch * gpt.seq_len;  ///< of a step
  Schedule schedule{o.schedule, o.run.lr, o.run.steps, tokens};
  int64_t N = o.run.ranks;                    ///< ranks
  int64_t share = o.ddp.share(batch, N);      ///< local batch: a rank's sequences of a step
  int64_t micro = o.accumulate.micro(share);  ///< MBS, sequences of a micro-batch
  int64_t GA = share / micro;                 ///< micro-batches of a step
  Recompute recompute{o.recompute.policy, gpt.layers};
  ActivationPlan acts = recompute.plan(o.precision.plan());

  explicit Layout(const Options& o_) : o(o_) {}
};

// ---- 3. memory ----------------------------------------------------------------------------------

struct Memory {
  const Options& o;
  const Layout& layout;
  Comm& comm;

  std::unique_ptr<Device> device = open_device(o.run);  // null: kernels run on the host
  Arena arena{device.get()};
  StepFlops flops = {};  // of a step's products
  Ctx ctx = make_ctx(o.run, arena, device.get(), {.flops = &flops.all, .comm = &comm});
  // Flat buffers: the weights that the optimizer updates, and those that the model reads.
  Weights weights{arena, layout.params.size(), o.precision};
  GptTensors w = layout.params.view(weights.compute);  // the latter, seen as a model
  // Gradients, in as many buffers as the micro-steps take.
  GradTree grads{arena, layout.params, o.accumulate, layout.GA};
  CommStream comm_stream =
      open_comm_stream(arena, ctx, comm, o.run, o.ddp, Ddp::largest_message(layout.params, o.ddp));
  Ddp ddp{comm_stream, layout.params, o.ddp};
  Optimizer optimizer{arena, layout.params, o.sgd, o.optimizer};
  LossScaler scaler{o.loss_scale, o.precision};
  Batch batch = alloc_batch(arena, layout.share, layout.gpt.seq_len);  // the local batch
  // (B): a loss for each sequence of all ranks, in memory shared with the host, which reads it.
  Tensor losses = arena.shared(Mem::Activation, "losses", Dtype::F32, {layout.batch});
  Activations acts = alloc_activations(arena, layout.gpt, layout.micro, layout.acts);
  ActGrads dacts = alloc_act_grads(arena, layout.gpt, layout.micro, layout.acts);
  Fp8 fp8{arena,
          layout.gpt,
          layout.micro,
          layout.recompute.sets(),
          o.precision.fp8(),
          ctx.kernels->transposes_fp8};
  // Memory of grad_norm: digits of a sum of squares, which ranks add exactly (docs/same_bits.md).
  Tensor limbs = arena.shared(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});

  Memory(const Options& o_, const Layout& layout_, Comm& comm_)
      : o(o_), layout(layout_), comm(comm_) {
    fp8.attach(w);
  }
};

/// The bytes that Memory will take, by the formulas of the READMEs.
MemoryBytes predict(const Options& o, const Layout& layout) {
  const int64_t P = layout.params.size(), B = layout.batch, MBS = layout.micro,
                T = layout.gpt.seq_len;
  MemoryBytes bytes;
  bytes[Mem::Param] = Weights::param_bytes(P, o.precision);
  bytes[Mem::Master] = Weights::master_bytes(P, o.precision);
  bytes[Mem::Optim] = Optimizer::bytes(layout.params, o.sgd, o.optimizer);
  // A token and its target: 8 bytes. A loss: 4.
  bytes[Mem::Activation] =
      activation_bytes(layout.gpt, MBS, layout.acts) + 8 * B / layout.N * T + 4 * B;
  bytes[Mem::Workspace] =
      act_grad_bytes(layout.gpt, MBS, layout.acts) + 8 * kLimbs + scratch_bytes(o.run);
  bytes[Mem::Comm] = CommStream::bytes(o.run.ranks, Ddp::largest_message(layout.params, o.ddp));
  GradTree::add_bytes(bytes, layout.params, o.accumulate, layout.GA);
  Fp8::add_bytes(bytes, layout.gpt, MBS, layout.recompute.sets(), o.precision.fp8(),
                 kernels_of(o.run.backend).transposes_fp8);
  return bytes;
}

// ---- 4. data ------------------------------------------------------------------------------------

/// All that a checkpoint holds.
TrainingState training_state(const Layout& layout, Memory& m) {
  return {.layout = layout.params,
          .params = m.weights.master,
          .optim = m.optimizer.tensors(),
          .others{named_state("optimizer", m.optimizer), named_state("loss_scale", m.scaler),
                  named_state("fp8", m.fp8)},
          .comm = &m.comm};
}

/// Initial weights of rank 0, or those of a checkpoint. Returns the first step to take.
int64_t start(const Options& o, const Layout& layout, Memory& m) {
  int64_t step = 0;
  // A checkpoint also has the step and the optimizer's states, which every rank needs.
  if (m.comm.rank() == 0 || !o.run.load.empty())
    step = load_or_init(m.ctx, o.run.load, o.run.seed, training_state(layout, m));
  m.comm.broadcast(m.weights.master, 0);
  m.weights.refresh(m.ctx);
  m.fp8.start(m.ctx);
  return step;
}

// ---- 5. step ------------------------------------------------------------------------------------

/// Forward of block l, which reads a.stream(l).
void forward_block(Memory& m, const Activations& a, int64_t l) {
  const Ctx& ctx = m.ctx;
  const BlockTensors& p = m.w.blocks[l];
  const BlockActs& s = a.blocks[l];
  norm_forward(ctx, s.norm1, s.stat1, a.stream(l), p.norm1);
  attn_forward(ctx, a.product, s.attn, m.fp8.attn(l), s.norm1, p.attn);
  residual_forward(ctx, s.mid, a.stream(l), a.product, p.residual1_b);

  norm_forward(ctx, s.norm2, s.stat2, s.mid, p.norm2);
  mlp_forward(ctx, a.product, s.mlp, m.fp8.mlp(l), s.norm2, p.mlp);
  residual_forward(ctx, s.out, s.mid, a.product, p.residual2_b);
}

/// From `tokens` (B,T) to the last norm. What backward needs stays in `a`, or is computed again.
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

/// The head, forward and backward: losses (B) of `targets` (B,T), the gradient of its input into
/// d.branch, and that of its weights.
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

/// The gradients of section s are complete in micro-step k of GA: they join those of earlier ones,
/// as in chapter 04. The sum goes to the other ranks after the last micro-step alone (PyTorch's
/// no_sync() in all others).
void section_done(Memory& m, int64_t s, int64_t k, int64_t GA) {
  m.grads.join(m.ctx, k, GA, s);
  if (k + 1 == GA) m.ddp.section_done(m.grads.sum(), s);
}

/// Gradients of all parameters but the head's, from d.branch, which `head` has written. They go to
/// the other ranks section by section.
void backward(Memory& m, const Layout& layout, int64_t k, int64_t GA, const Activations& a,
              const ActGrads& d, Tensor tokens) {
  const Ctx& ctx = m.ctx;
  const GptTensors& w = m.w;
  const GptTensors& dw = m.grads.view();
  const Into into = m.grads.into();
  const auto L = std::ssize(w.blocks);
  norm_backward_input(ctx, d.stream, d.branch, a.stream(L), a.stat, w.norm);
  norm_backward_weight(ctx, dw.norm, d.branch, a.stream(L), a.stat, into);
  section_done(m, L + 1, k, GA);  // the head's section; block l has l + 1, the embedding 0

  // d.stream: the gradient of the residual stream. A residual hands it on to both its operands.
  // d.branch: the gradient of what attn, mlp or the head has read. d.norm: of what a norm has read.
  for (int64_t l = L; l-- > 0;) {  // the last block first
    recompute_segment(m, a, layout.recompute, l);

    const BlockTensors& p = w.blocks[l];
    const BlockTensors& g = dw.blocks[l];
    const BlockActs& s = a.blocks[l];
    residual_backward_weight(ctx, g.residual2_b, d.stream, into);
    mlp_backward_input(ctx, d.branch, d.mlp, d.stream, s.mlp, m.fp8.mlp(l), p.mlp);
    mlp_backward_weight(ctx, g.mlp, d.mlp, d.stream, s.norm2, s.mlp, m.fp8.mlp(l), into);
    norm_backward_input(ctx, d.norm, d.branch, s.mid, s.stat2, p.norm2);
    norm_backward_weight(ctx, g.norm2, d.branch, s.mid, s.stat2, into);
    // The branch has read the stream, too: what came back through its norm is added.
    residual_backward_input(ctx, d.stream, d.norm);

    residual_backward_weight(ctx, g.residual1_b, d.stream, into);
    attn_backward_input(ctx, d.branch, d.attn, d.stream, s.attn, m.fp8.attn(l), p.attn);
    attn_backward_weight(ctx, g.attn, d.attn, d.stream, s.norm1, s.attn, m.fp8.attn(l), into);
    norm_backward_input(ctx, d.norm, d.branch, a.stream(l), s.stat1, p.norm1);
    norm_backward_weight(ctx, g.norm1, d.branch, a.stream(l), s.stat1, into);
    residual_backward_input(ctx, d.stream, d.norm);
    section_done(m, l + 1, k, GA);
  }
  embed_backward_weight(ctx, dw.embed, d.stream, tokens, into);
  section_done(m, 0, k, GA);
}

/// One batch: loss, gradients of this rank's share, their sum over ranks, update.
StepRecord train_step(const Options& o, const Layout& layout, Memory& m, const Text& text, Log& log,
                      int64_t step) {
  const int64_t MBS = layout.micro, GA = layout.GA, first = m.comm.rank() * layout.share;
  const Tensor local_losses = m.losses.slice(first, layout.share);
  m.flops = {};
  text.draw(m.batch, o.run.seed, step, first);
  const int64_t targets = sum_over(m.comm, count_targets(m.batch));
  // The loss is a mean over all targets of the batch, so each target weighs 1 / targets. FP16
  // multiplies this weight by the loss scale, a power of two.
  const float scale = m.scaler.scale() / static_cast<float>(targets);
  m.fp8.begin_step();

  for (int64_t k = 0; k < GA; ++k) {
    const Batch part = m.batch.slice(k * MBS, MBS);
    m.grads.begin(k);
    forward(m, m.acts, part.tokens);
    head(m, m.grads.view(), m.acts, m.dacts, local_losses.slice(k * MBS, MBS), part.targets,
         layout.gpt.vocab, scale, m.grads.into());
    backward(m, layout, k, GA, m.acts, m.dacts, part.tokens);
    m.grads.close(k, GA);
  }
  m.ddp.wait(m.ctx, m.grads.sum());
  const Tensor grads = m.grads.finish(m.ctx);
  m.comm.all_gather(m.losses, local_losses);  // by index: mean_loss() sums them as one rank does
  m.scaler.unscale(m.ctx, grads);
  const float loss = mean_loss(m.ctx, m.losses, targets);
  const double norm = grad_norm(m.ctx, grads, layout.params, m.limbs);

  const float lr = layout.schedule.lr(step);
  if (o.precision.fp8()) m.comm.all_reduce(m.fp8.scales(), Combine::Max);
  const std::string bad = m.fp8.judge(m.ctx, m.scaler.end_step(loss, norm));
  if (bad.empty()) {
    clip_global_norm(m.ctx, grads, norm, o.clip.clip);
    m.optimizer.step(m.ctx, m.weights.master, grads, lr);
    m.weights.refresh(m.ctx);
  } else {
    log.skipped(step, bad);
  }
  m.fp8.end_step(m.ctx);
  return {.step = step, .loss = loss, .grad_norm = norm, .lr = lr, .tokens = layout.tokens};
}

/// Mean loss of the held-out text, shared among ranks.
float validate(const Layout& layout, Memory& m, const Text& text) {
  Validation v(m.ctx, &m.comm, text, m.batch, m.losses, layout.micro);
  while (v.next()) {
    const Activations acts = m.acts.first(v.count());
    forward(m, acts, v.batch().tokens);
    head_forward(m.ctx, acts.logits, acts.norm, m.w.head_w);
    head_loss(m.ctx, v.losses(), acts.logits, v.batch().targets, layout.gpt.vocab);
    m.fp8.judge_losses(m.ctx, v.losses());
  }
  return v.mean();
}

void train(const Options& o, const Layout& layout, Memory& m, const Text& text, Run& run) {
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

void run(Options o, Comm& comm) {
  o.run.ranks = comm.size();  // under mpirun the processes are the ranks
  const Layout layout(o);
  const RunPlan plan{.chapter = "16_fp8",
                     .gpt = layout.gpt,
                     .layout = run_layout(o.run, layout.micro, {{Axis::Data, o.run.ranks}}),
                     .predicted = predict(o, layout)};
  if (o.run.plan_only) return show_plan(o.run, plan, &comm);
  const Text text(o.run.text(layout.gpt));
  Memory m(o, layout, comm);
  Run run(o.run, plan, m.arena, m.ctx, &comm);
  m.comm_stream.show(run.log);  // its bars in the timeline, its messages in the report
  train(o, layout, m, text, run);
  m.scaler.report(run.log.extra());
  report_recompute(run.log, m.flops, layout.recompute.extra_flops(layout.gpt, layout.share));
  report_traffic(run.log, ddp_traffic(layout.params, o.ddp, o.run.ranks), m.comm_stream);
  run.finish(validate(layout, m, text));
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] {
    const ladder::Options o = ladder::parse_options(argc, argv);
    ladder::start_ranks(o.run, [&](ladder::Comm& comm) { run(o, comm); });
  });
}
