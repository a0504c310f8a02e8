// 28_async_checkpoint: chapter 10 with checkpoints that ranks write while training goes on. Each
// rank takes a copy between two steps, and a thread writes the copy.

#include "chapters/02_adamw/optimizer.h"
#include "chapters/03_schedules/schedule.h"
#include "chapters/04_clipping/accumulate.h"
#include "chapters/04_clipping/clip.h"
#include "chapters/05_mixed_precision/loss_scaler.h"
#include "chapters/05_mixed_precision/precision.h"
#include "chapters/06_checkpointing/recompute.h"
#include "chapters/07_ddp/ddp.h"
#include "chapters/08_zero1/zero1.h"
#include "chapters/09_zero2/zero2.h"
#include "chapters/10_zero3/zero3.h"
#include "chapters/28_async_checkpoint/async_save.h"
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
  PrecisionOptions precision;
  LossScaleOptions loss_scale;
  RecomputeOptions recompute;
  DdpOptions ddp;
  Zero3Options zero3;
  AsyncOptions async;
};

Options parse_options(int argc, char** argv) {
  Options o;
  CommandLine("28_async_checkpoint: training goes on while ranks save")
      .read(argc, argv, o.run, o.sgd, o.optimizer, o.schedule, o.accumulate, o.clip, o.precision,
            o.loss_scale, o.recompute, o.ddp, o.zero3, o.async);
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

/// Every rank holds weights, gradients and optimizer states of a shard, a few gathered sections,
/// and the activations of a micro-batch of its share.
struct Layout {
  const Options& o;
  int rank;

  // In this order: members use those above.
  GptConfig gpt = o.run.gpt();
  ParamLayout params{gpt, o.run.ranks};
  /// This rank's chunks of all sections.
  ParamLayout local = params.shard(rank);
  int64_t batch = o.run.batch;           ///< B, sequences of a step
  int64_t tokens = batch * gpt.seq_len;  ///< of a step
  Schedule schedule{o.schedule, o.run.lr, o.run.steps, tokens};
  int64_t N = o.run.ranks;                    ///< ranks
  int64_t share = o.ddp.share(batch, N);      ///< local batch: a rank's sequences of a step
  int64_t micro = o.accumulate.micro(share);  ///< MBS, sequences of a micro-batch
  /// Micro-batches of a step.
  int64_t GA = micro_steps(o.ddp, batch, share, micro, N);
  Recompute recompute{o.recompute.policy, gpt.layers};
  ActivationPlan acts = recompute.plan(o.precision.plan());

  Layout(const Options& o_, int rank_) : o(o_), rank(rank_) {}
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
  // Flat buffers of this rank's shard: the weights that the optimizer updates, and those that are
  // gathered for the model.
  WeightShard weights{{arena, layout.local.size(), o.precision}};
  CommStream comm_stream =
      open_comm_stream(arena, ctx, comm, o.run, o.ddp, layout.params.largest_section());
  GatheredParams params =
      GatheredParams(arena, comm_stream, layout.params, layout.local, weights.compute, o.zero3);
  const GptTensors& w = params.view();  // the model, as far as it is gathered
  ShardedGrads grads{arena, comm_stream, layout.params, layout.local, o.accumulate, layout.GA};
  Optimizer optimizer{arena, layout.local, o.sgd, o.optimizer};
  // A copy of what is saved. A thread writes it while training changes the original.
  Staging staging{arena, o.async, weights.master, optimizer.tensors()};
  LossScaler scaler{o.loss_scale, o.precision};
  Batch batch = alloc_batch(arena, layout.share, layout.gpt.seq_len);  // the local batch
  // (B): a loss for each sequence of all ranks, in memory shared with the host, which reads it.
  Tensor losses = arena.shared(Mem::Activation, "losses", Dtype::F32, {layout.batch});
  Activations acts = alloc_activations(arena, layout.gpt, layout.micro, layout.acts);
  ActGrads dacts = alloc_act_grads(arena, layout.gpt, layout.micro, layout.acts);
  // Memory of grad_norm: digits of a sum of squares, which ranks add exactly (docs/same_bits.md).
  Tensor limbs = arena.shared(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});
};

/// The bytes that Memory will take, by the formulas of the READMEs.
MemoryBytes predict(const Options& o, const Layout& layout) {
  const int64_t local = layout.local.size(), B = layout.batch, MBS = layout.micro,
                T = layout.gpt.seq_len;
  MemoryBytes bytes;
  bytes[Mem::Param] = Weights::param_bytes(local, o.precision);
  bytes[Mem::Master] = Weights::master_bytes(local, o.precision);
  bytes[Mem::Optim] = Optimizer::bytes(layout.local, o.sgd, o.optimizer);
  bytes[Mem::Staging] = Staging::bytes(o.async, 4 * local, bytes[Mem::Optim]);
  // A token and its target: 8 bytes. A loss: 4.
  bytes[Mem::Activation] =
      activation_bytes(layout.gpt, MBS, layout.acts) + 8 * B / layout.N * T + 4 * B;
  bytes[Mem::Workspace] =
      act_grad_bytes(layout.gpt, MBS, layout.acts) + 8 * kLimbs + scratch_bytes(o.run);
  bytes[Mem::Workspace] += size_of(o.precision.dtype()) * o.zero3.buffer_elements(layout.params);
  bytes[Mem::Comm] = CommStream::bytes(o.run.ranks, layout.params.largest_section());
  ShardedGrads::add_bytes(bytes, layout.params, layout.local, o.accumulate, layout.GA,
                          o.ddp.overlaps(o.run.ranks));
  return bytes;
}

// ---- 4. data ------------------------------------------------------------------------------------

/// All that a checkpoint holds.
TrainingState training_state(const Layout& layout, Memory& m) {
  return {.layout = layout.local,
          .params = m.weights.master,
          .optim = m.optimizer.tensors(),
          .others{named_state("optimizer", m.optimizer), named_state("loss_scale", m.scaler)},
          .comm = &m.comm};
}

/// Initial weights of this rank's chunks, or those of a checkpoint. Returns the first step to take.
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

/// From `tokens` (B,T) to the last norm. What backward needs stays in `a`, or is computed again.
void forward(Memory& m, const Activations& a, Tensor tokens) {
  const auto L = std::ssize(m.w.blocks);
  m.params.unshard(m.ctx, 0, 1);
  embed_forward(m.ctx, a.embed, tokens, m.w.embed);
  for (int64_t l = 0; l < L; ++l) {
    m.params.unshard(m.ctx, l + 1, l + 2);  // block l is section l + 1
    // If recomputation lets blocks share memory, block l overwrites what forward has kept of block
    // l - Recompute::sets().
    forward_block(m, a, l);
  }
  m.params.unshard(m.ctx, L + 1);  // the last norm and the head
  norm_forward(m.ctx, a.norm, a.stat, a.stream(L), m.w.norm);
}

/// The head, forward and backward: losses (B) of `targets` (B,T), the gradient of its input into
/// d.branch, and that of its weights. It begins the last section, which backward() ends.
void head(Memory& m, const Activations& a, const ActGrads& d, Tensor losses, Tensor targets,
          int64_t vocab, float scale) {
  m.grads.begin_section(m.ctx, std::ssize(m.w.blocks) + 1);
  head_forward(m.ctx, a.logits, a.norm, m.w.head_w);
  head_loss_and_gradient(m.ctx, losses, a.logits, targets, vocab, scale);
  head_backward_input(m.ctx, d.branch, a.logits, m.w.head_w);
  head_backward_weight(m.ctx, m.grads.view().head_w, a.logits, a.norm, Into::Write);
}

/// Before backward of block l: computes again what forward has dropped of it and of its segment.
/// Gathers the weights of the block.
void recompute_segment(Memory& m, const Activations& a, const Recompute& recompute, int64_t l) {
  const StepFlops::Recomputing counted(m.flops);
  const Range segment = recompute.segment_before(l);
  for (int64_t b = segment.begin; b < segment.end; ++b) {
    m.params.unshard(m.ctx, b + 1, b + 1 < segment.end ? b + 2 : 0);
    forward_block(m, a, b);
  }
  m.params.unshard(m.ctx, l + 1, section_after(recompute, l));
  recompute_parts(m.ctx, recompute.parts_before(l), a.blocks[l], a.stream(l), m.w.blocks[l]);
}

/// Gradients of all parameters but the head's, from d.branch, which `head` has written. They go to
/// the other ranks section by section.
void backward(Memory& m, const Layout& layout, const Activations& a, const ActGrads& d,
              Tensor tokens) {
  const Ctx& ctx = m.ctx;
  const GptTensors& w = m.w;
  const GptTensors& dw = m.grads.view();  // of the section that was begun last
  const Into into = Into::Write;
  const auto L = std::ssize(w.blocks);
  norm_backward_input(ctx, d.stream, d.branch, a.stream(L), a.stat, w.norm);
  norm_backward_weight(ctx, dw.norm, d.branch, a.stream(L), a.stat, into);
  m.grads.end_section(L + 1);  // head() has begun it

  // d.stream: the gradient of the residual stream. A residual hands it on to both its operands.
  // d.branch: the gradient of what attn, mlp or the head has read. d.norm: of what a norm has read.
  for (int64_t l = L; l-- > 0;) {  // the last block first
    // This also gathers the weights of block l.
    recompute_segment(m, a, layout.recompute, l);

    m.grads.begin_section(ctx, l + 1);
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
    m.grads.end_section(l + 1);  // its reduce-scatter begins
  }
  m.grads.begin_section(ctx, 0);
  embed_backward_weight(ctx, dw.embed, d.stream, tokens, into);
  m.grads.end_section(0);
}

/// One batch: loss, gradients of this rank's share, sums over ranks and update of its chunks.
StepRecord train_step(const Options& o, const Layout& layout, Memory& m, const Text& text, Log& log,
                      int64_t step) {
  const int64_t MBS = layout.micro, GA = layout.GA;
  m.flops = {};
  // The micro-batches of all ranks are neighbors: their gradients are summed first (zero2.h).
  const auto first = [&](int64_t k) { return (k * layout.N + m.comm.rank()) * MBS; };
  for (int64_t k = 0; k < GA; ++k) {
    const Batch part = m.batch.slice(k * MBS, MBS);
    text.draw(part, o.run.seed, step, first(k));
  }
  const int64_t targets = sum_over(m.comm, count_targets(m.batch));
  // The loss is a mean over all targets of the batch, so each target weighs 1 / targets. FP16
  // multiplies this weight by the loss scale, a power of two.
  const float scale = m.scaler.scale() / static_cast<float>(targets);

  for (int64_t k = 0; k < GA; ++k) {
    const Batch part = m.batch.slice(k * MBS, MBS);
    const Tensor local_losses = m.losses.slice(first(k), MBS);
    m.grads.begin(k, GA);
    forward(m, m.acts, part.tokens);
    head(m, m.acts, m.dacts, local_losses, part.targets, layout.gpt.vocab, scale);
    backward(m, layout, m.acts, m.dacts, part.tokens);
    m.comm.all_gather(m.losses.slice(k * MBS * layout.N, MBS * layout.N), local_losses);
    m.grads.end();
  }
  const Shard grads = m.grads.finish(m.ctx);
  m.scaler.unscale(m.ctx, grads.tensor);
  const float loss = mean_loss(m.ctx, m.losses, targets);
  const double norm = grad_norm(m.ctx, grads, layout.local, m.limbs, &m.comm);

  const float lr = layout.schedule.lr(step);
  const std::string bad = m.scaler.end_step(loss, norm);
  if (bad.empty()) {
    clip_global_norm(m.ctx, grads.tensor, norm, o.clip.clip);
    m.optimizer.step(m.ctx, m.weights.master, grads, lr);
    m.weights.refresh(m.ctx);
  } else {
    log.skipped(step, bad);
  }
  m.params.reshard();  // after a skip, too, so that all steps send equally much
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
  }
  m.params.reshard();  // a step sends as much after a validation as after another step
  return v.mean();
}

void train(const Options& o, const Layout& layout, Memory& m, const Text& text, Run& run,
           AsyncSave& saving) {
  for (int64_t step = start(o, layout, m); run.goes_on(step); ++step) {
    run.begin_step();
    const StepRecord record = train_step(o, layout, m, text, run.log, step);
    run.end_step(record);
    if (run.tracing())
      run.log.trace(record, param_hash(m.ctx, m.weights.master, layout.local, &m.comm));
    if (run.eval_due(step)) run.log.eval(step, validate(layout, m, text));
    if (run.save_due(step)) saving.save(m.ctx, training_state(layout, m), step + 1);
    saving.end_step(step);
  }
}

// ---- 6. report ----------------------------------------------------------------------------------

void run(Options o, Comm& comm) {
  o.run.ranks = comm.size();  // under mpirun the processes are the ranks
  const Layout layout(o, comm.rank());
  const RunPlan plan{.chapter = "28_async_checkpoint",
                     .gpt = layout.gpt,
                     .layout = run_layout(o.run, layout.micro, {{Axis::Data, o.run.ranks}}),
                     .predicted = predict(o, layout)};
  if (o.run.plan_only) return show_plan(o.run, plan, &comm);
  const Text text(o.run.text(layout.gpt));
  Memory m{o, layout, comm};
  Run run(o.run, plan, m.arena, m.ctx, &comm);
  m.comm_stream.show(run.log);  // its bars in the timeline, its messages in the report
  AsyncSave saving(run, m.staging);
  train(o, layout, m, text, run, saving);
  m.scaler.report(run.log.extra());
  report_recompute(run.log, m.flops, layout.recompute.extra_flops(layout.gpt, layout.share));
  report_traffic(
      run.log,
      zero3_traffic(layout.params, o.ddp, o.precision, layout.recompute, o.zero3, layout.GA),
      m.comm_stream);
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
