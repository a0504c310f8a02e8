// 38_pretrain: what a real run wants, in one program. Chapters 27, 28, 29, 30 and 32 merged:
// documents of several sources in order, saves beside training, alarms and a way back, shards with
// replicas, Muon.

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
#include "chapters/14_stability/spike_guard.h"
#include "chapters/26_packing/bundles.h"
#include "chapters/26_packing/packed_text.h"
#include "chapters/27_data_order/ordered_text.h"
#include "chapters/28_async_checkpoint/async_save.h"
#include "chapters/29_monitor/detectors.h"
#include "chapters/29_monitor/events.h"
#include "chapters/29_monitor/rewind.h"
#include "chapters/29_monitor/watch.h"
#include "chapters/30_hsdp/hsdp.h"
#include "chapters/32_optimizers/optimizers.h"
#include "common/data/text.h"
#include "common/model/activations.h"
#include "common/model/init.h"
#include "common/model/measure.h"
#include "common/run/backend.h"
#include "common/run/run.h"
#include "common/run/run_main.h"
#include "common/save/checkpoint.h"

namespace ladder {
namespace {

// ---- 1. options ---------------------------------------------------------------------------------

struct Options {
  RunOptions run;
  SgdOptions sgd;
  OptimizersOptions optimizer;
  ScheduleOptions schedule;
  AccumulateOptions accumulate;
  ClipOptions clip;
  PrecisionOptions precision;
  LossScaleOptions loss_scale;
  RecomputeOptions recompute;
  DdpOptions ddp;
  Zero3Options zero3;
  AsyncOptions async;
  HsdpOptions hsdp;
  PackOptions packing;
  SourceOptions sources;
  SpikeGuardOptions spike_guard;
  EventOptions events;
  WatchOptions watch;
  DetectorOptions alarms;
  RewindOptions rewind;
};

Options parse_options(int argc, char** argv) {
  Options o;
  CommandLine("38_pretrain: branches merged into a program for real runs")
      .read(argc, argv, o.run, o.sgd, o.optimizer, o.schedule, o.accumulate, o.clip, o.precision,
            o.loss_scale, o.recompute, o.ddp, o.zero3, o.async, o.hsdp, o.packing, o.sources,
            o.spike_guard, o.events, o.watch, o.alarms, o.rewind);
  o.rewind.check(o.run, o.spike_guard);
  o.sources.find_files(o.run, o.packing);  // and reads them once: ranks compare checksums
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

/// Every rank holds weights, gradients and optimizer states of one of S shards, a few gathered
/// sections, and the activations of a micro-batch of its share.
struct Layout {
  const Options& o;
  int rank;

  // In this order: members use those above.
  int64_t N = o.run.ranks;       ///< ranks
  int64_t R = o.hsdp.replicas;   ///< ranks of a replica group: they hold the same shard
  int64_t S = o.hsdp.shards(N);  ///< ranks of a shard group: they hold one model
  HsdpPlace place{S, rank};
  GptConfig gpt = o.run.gpt();
  ParamLayout params{gpt, S};
  /// This rank's chunks of all sections.
  ParamLayout local = params.shard(place.shard());
  int64_t batch = o.run.batch;           ///< B, bundles of a step
  int64_t tokens = batch * gpt.seq_len;  ///< of a step, if its rows were full
  Schedule schedule{o.schedule, o.run.lr, o.run.steps, tokens};
  /// Of the matrices that Muon orthogonalizes. Other optimizers do not read it.
  Schedule matrix_schedule{o.schedule, o.optimizer.muon.peak(o.run.lr), o.run.steps, tokens};
  int64_t share = o.ddp.share(batch, N);               ///< bundles of a step on one rank
  int64_t micro = o.accumulate.micro(share);           ///< MBS, bundles of a micro-batch
  int64_t rows = micro * o.packing.rows(gpt.seq_len);  ///< of a micro-batch at most
  /// Micro-batches of a step.
  int64_t GA = micro_steps(o.ddp, batch, share, micro, S);
  int64_t turns = turns_of_bundle(o.packing.most(gpt.seq_len));  ///< losses of a bundle
  int64_t stream = rows * gpt.seq_len * gpt.channels;  ///< elements of a residual stream at most
  Recompute recompute{o.recompute.policy, gpt.layers};
  ActivationPlan acts = recompute.plan(o.precision.plan());

  Layout(const Options& o_, int rank_) : o(o_), rank(rank_) { o.optimizer.check_sharding(S); }
  /// Which bundles of a step this rank has: those of its micro-batches.
  std::vector<int64_t> bundles() const {
    std::vector<int64_t> numbers;
    for (int64_t k = 0; k < GA; ++k)
      for (int64_t i = 0; i < micro; ++i) numbers.push_back(place.first(share, k, micro) + i);
    return numbers;
  }
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
  HsdpGroups groups = split_groups(comm, layout.place);
  CommStream shard_stream =
      open_comm_stream(arena, ctx, *groups.shards, o.run, o.ddp, layout.params.largest_section());
  CommStream replica_stream =
      open_comm_stream(arena, ctx, *groups.replicas, o.run, o.ddp, layout.local.grads().size());
  GatheredParams params =
      GatheredParams(arena, shard_stream, layout.params, layout.local, weights.compute, o.zero3);
  const GptTensors& w = params.view();  // the model, as far as it is gathered
  ShardedGrads grads{arena, shard_stream, layout.params, layout.local, o.accumulate, layout.GA};
  Optimizers optimizer{arena, layout.local, o.sgd, o.optimizer, *groups.shards};
  // A copy of what is saved. A thread writes it while training changes the original.
  Staging staging{arena, o.async, weights.master, optimizer.tensors()};
  LossScaler scaler{o.loss_scale, o.precision};
  SpikeGuard guard{o.spike_guard};
  // Sums over N ranks, not over S: each replica has a residual stream of its own.
  ParamLayout watched{layout.gpt, layout.N};
  Watch watch{arena, watched, layout.local, o.precision.dtype(), layout.stream, o.watch};
  Rewinds rewinds{o.rewind};
  Detectors detectors{o.alarms, rewinds.on(), o.precision};
  BatchNumbers batches{o.rewind};
  int64_t next_batch = 0;  // number of the batch that the next draw gives
  // This rank's share, and a loss for each turn of all ranks.
  BundleBatch batch{arena, o.packing, layout.share, layout.micro, layout.gpt.seq_len};
  Tensor losses =
      arena.shared(Mem::Activation, "all_losses", Dtype::F32, {layout.batch * layout.turns});
  OrderPlace place{o.sources, o.packing, layout.gpt.seq_len, o.run.seed};
  PackCounts packed = {}, last = {};  // counts of all steps, and of the last one
  Activations acts = alloc_activations(arena, layout.gpt, layout.rows, layout.acts);
  ActGrads dacts = alloc_act_grads(arena, layout.gpt, layout.rows, layout.acts);
  // Memory of grad_norm: digits of a sum of squares, which ranks add exactly (docs/same_bits.md).
  Tensor limbs = arena.shared(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});
};

/// The bytes that Memory will take, by the formulas of the READMEs.
MemoryBytes predict(const Options& o, const Layout& layout) {
  const int64_t local = layout.local.size(), rows = layout.rows;
  MemoryBytes bytes;
  bytes[Mem::Param] = Weights::param_bytes(local, o.precision);
  bytes[Mem::Master] = Weights::master_bytes(local, o.precision);
  // A token, its target and its position: 12 bytes. A loss and two borders: 12.
  bytes[Mem::Activation] = activation_bytes(layout.gpt, rows, layout.acts) +
                           BundleBatch::bytes(o.packing, layout.share, layout.gpt.seq_len) +
                           4 * layout.batch * layout.turns;
  bytes[Mem::Workspace] =
      act_grad_bytes(layout.gpt, rows, layout.acts) + 8 * kLimbs + scratch_bytes(o.run);
  bytes[Mem::Workspace] += size_of(o.precision.dtype()) * o.zero3.buffer_elements(layout.params);
  bytes[Mem::Workspace] += Watch::bytes(ParamLayout(layout.gpt, layout.N), layout.local,
                                        o.precision.dtype(), layout.stream, o.watch);
  bytes[Mem::Comm] = CommStream::bytes(layout.S, layout.params.largest_section()) +
                     CommStream::bytes(layout.R, layout.local.grads().size());
  ShardedGrads::add_bytes(bytes, layout.params, layout.local, o.accumulate, layout.GA,
                          o.ddp.overlaps(layout.S));
  Optimizers::add_bytes(bytes, layout.local, o.sgd, o.optimizer);
  bytes[Mem::Staging] = Staging::bytes(o.async, 4 * local, bytes[Mem::Optim]);
  return bytes;
}

// ---- 4. data ------------------------------------------------------------------------------------

/// All that a checkpoint holds.
TrainingState training_state(const Layout& layout, Memory& m) {
  return {.layout = layout.local,
          .params = m.weights.master,
          .optim = m.optimizer.tensors(),
          .others{named_state("optimizer", m.optimizer), named_state("loss_scale", m.scaler),
                  named_state(m.place.name(), m.place), named_state("spike_guard", m.guard),
                  named_state("detectors", m.detectors), named_state("batches", m.batches)},
          .comm = &m.comm};
}

/// Initial weights of this rank's chunks, or those of the checkpoint `from`. Returns the first step
/// to take.
int64_t start(const Options& o, const Layout& layout, Memory& m, const std::string& from) {
  const int64_t step = load_or_init(m.ctx, from, o.run.seed, training_state(layout, m));
  m.weights.refresh(m.ctx);
  m.next_batch = step + m.batches.skipped();
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
  m.params.unshard(m.ctx, 0, 1);
  embed_forward(m.ctx, a.embed, tokens, m.w.embed);
  for (int64_t l = 0; l < L; ++l) {
    m.params.unshard(m.ctx, l + 1, l + 2);  // block l is section l + 1
    m.watch.stream(m.ctx, l, a.stream(l));
    // If recomputation lets blocks share memory, block l overwrites what forward has kept of block
    // l - Recompute::sets().
    forward_block(m, a, l);
  }
  m.params.unshard(m.ctx, L + 1);  // the last norm and the head
  m.watch.stream(m.ctx, L, a.stream(L));
  norm_forward(m.ctx, a.norm, a.stat, a.stream(L), m.w.norm);
}

/// The head, forward and backward: losses of `targets` (R,T), one for each turn, the gradient of
/// its input into d.branch, and that of its weights.
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
StepRecord train_step(const Options& o, const Layout& layout, Memory& m, OrderedText& text,
                      Log& log, int64_t step) {
  const int64_t MBS = layout.micro, GA = layout.GA;
  m.flops = {};
  m.watch.begin(m.ctx, step);
  const int64_t number = m.batches.advance_to(step);
  // An order has no gaps: the rows of a skipped batch are read, and dropped.
  for (; m.next_batch <= number; ++m.next_batch) text.draw(m.batch, m.place, m.next_batch);
  m.last = m.batch.counts();
  m.packed += m.last;
  for (int64_t k = 0; k < GA; ++k)
    o.spike_guard.inject(m.batch.slice(m.ctx, k * MBS, MBS).rows, o.run.seed, number,
                         layout.place.first(layout.share, k, MBS));
  const int64_t targets = sum_over(m.comm, count_targets(m.batch.rows()));
  // A shard group has neighboring bundles of the batch. Within them, the micro-batches of one
  // micro-step are neighbors: their gradients are summed first.
  const int64_t first_of_group = layout.place.first_of_group(layout.share) * layout.turns;
  // The loss is a mean over all targets of the batch, so each target weighs 1 / targets. FP16
  // multiplies this weight by the loss scale, a power of two.
  const float scale = m.scaler.scale() / static_cast<float>(targets);

  for (int64_t k = 0; k < GA; ++k) {
    const Bundles part = m.batch.slice(m.ctx, k * MBS, MBS);
    const Activations acts = m.acts.first(part.row_count());
    const ActGrads dacts = m.dacts.first(part.row_count());
    // From here on every kernel takes a document for a sequence.
    m.ctx.documents = part.documents;
    m.grads.begin(k, GA);
    forward(m, acts, part.rows.tokens);
    head(m, acts, dacts, part.losses, part.rows.targets, layout.gpt.vocab, scale);
    backward(m, layout, acts, dacts, part.rows.tokens);
    const int64_t losses = part.losses.size() * layout.S;  // of a micro-step in the shard group
    m.groups.shards->all_gather(m.losses.slice(first_of_group + k * losses, losses), part.losses);
    m.grads.end();
  }
  m.ctx.documents = {};
  // So far a rank has the losses of its shard group. Now all ranks get all of them.
  m.groups.replicas->all_gather(
      m.losses, m.losses.slice(first_of_group, layout.share * layout.S * layout.turns));
  // In place: grads.sum() is the buffer that finish() reads.
  sum_over_replicas(m.ctx, m.replica_stream, m.grads.sum(m.ctx));
  const Shard grads = m.grads.finish(m.ctx);
  m.scaler.unscale(m.ctx, grads.tensor);
  const float loss = mean_loss(m.ctx, m.losses, targets);
  const double norm = grad_norm(m.ctx, grads, layout.local, m.limbs, m.groups.shards.get());

  const float lr = layout.schedule.lr(step);
  std::string bad = m.scaler.end_step(loss, norm);
  if (bad.empty()) bad = m.guard.judge(loss, norm);
  // Only the first shard group adds its tensors: those of the others are copies.
  if (layout.place.group() == 0) m.watch.before(m.ctx, grads, m.weights.master);
  if (bad.empty()) {
    clip_global_norm(m.ctx, grads.tensor, norm, o.clip.clip);
    m.optimizer.step(m.ctx, m.weights.master, grads, lr, layout.matrix_schedule.lr(step));
    if (layout.place.group() == 0) m.watch.after(m.ctx, m.weights.master);
    m.weights.refresh(m.ctx);
  } else {
    log.skipped(step, bad);
  }
  m.params.reshard();  // after a skip, too, so that all steps send equally much
  m.watch.finish(m.ctx, m.comm, norm);
  return {.step = step, .loss = loss, .grad_norm = norm, .lr = lr, .tokens = targets};
}

/// Mean loss of the held-out text, shared among ranks.
float validate(const Layout& layout, Memory& m, const OrderedText& text) {
  BundleValidation v(m.ctx, text.validation_text(), m.batch, layout.micro, m.losses, &m.comm);
  while (v.next()) {
    const Bundles& part = v.bundles();
    const Activations acts = m.acts.first(part.row_count());
    m.ctx.documents = part.documents;
    forward(m, acts, part.rows.tokens);
    head_forward(m.ctx, acts.logits, acts.norm, m.w.head_w);
    head_loss(m.ctx, part.losses, acts.logits, part.rows.targets, layout.gpt.vocab);
  }
  m.params.reshard();  // a step sends as much after a validation as after another step
  m.ctx.documents = {};
  return v.mean();
}

/// Logs the alarms of a step. Returns the one after which the run goes back, if there is one.
std::optional<Alarm> tell_alarms(Memory& m, Log& log, const StepRecord& record) {
  std::optional<Alarm> cause;
  for (const Alarm& alarm : m.detectors.look(record, m.watch)) {
    log.note(fmt::format("step {}: alarm: {}, {}", record.step, alarm.kind, alarm.why));
    log.extra()["alarms"].push_back(
        {{"step", record.step}, {"kind", alarm.kind}, {"why", alarm.why}});
    if (alarm.goes_back() && m.rewinds.on()) cause = alarm;
  }
  return cause;
}

/// Loads the checkpoint in --save, and skips the batches around the one that step `step` took.
/// Returns the next step to take. If going back has not helped, the run ends.
int64_t go_back(const Options& o, const Layout& layout, Memory& m, Run& run, int64_t step,
                const Alarm& alarm) {
  const int64_t batch = m.batches.advance_to(step);
  const int64_t to = Manifest::find(o.run.save).value().steps();
  if (!m.rewinds.count(to)) return m.rewinds.give_up(run, step, alarm.kind + ", " + alarm.why);
  start(o, layout, m, o.run.save);
  const Range range = m.rewinds.around(batch, m.batches.advance_to(to));
  m.batches.skip(range);
  report_rewind(run.log, step, alarm.kind, to, range);
  return to;
}

void train(const Options& o, const Layout& layout, Memory& m, OrderedText& text, Run& run,
           AsyncSave& saving, Events& events) {
  int64_t step = start(o, layout, m, o.run.load);
  events.begin(step);
  // An alarm may come before the first save is due.
  if (m.rewinds.on()) run.saver.save(training_state(layout, m), step);
  while (run.goes_on(step)) {
    run.begin_step();
    const StepRecord record = train_step(o, layout, m, text, run.log, step);
    if (!text.more()) run.end_after(step);  // --epochs: fewer rows are left than a step has
    run.end_step(record);
    if (run.tracing())
      run.log.trace(record,
                    param_hash(m.ctx, m.weights.master, layout.local, m.groups.shards.get()));
    events.step(record, m.watch.scalars());
    if (const std::optional<Alarm> alarm = tell_alarms(m, run.log, record)) {
      saving.wait();  // the newest checkpoint may be under way
      step = go_back(o, layout, m, run, step, *alarm);
      events.begin(step);
      continue;
    }
    if (run.eval_due(step)) run.log.eval(step, events.validation(step, validate(layout, m, text)));
    if (run.save_due(step)) saving.save(m.ctx, training_state(layout, m), step + 1);
    saving.end_step(step);
    ++step;
  }
}

// ---- 6. report ----------------------------------------------------------------------------------

void run(Options o, Comm& comm) {
  o.run.ranks = comm.size();  // under mpirun the processes are the ranks
  const Layout layout(o, comm.rank());
  const RunPlan plan{.chapter = "38_pretrain",
                     .gpt = layout.gpt,
                     .layout = run_layout(o.run, layout.micro, o.hsdp.mesh(o.run.ranks)),
                     .predicted = predict(o, layout)};
  if (o.run.plan_only) return show_plan(o.run, plan, &comm);
  OrderedText text(o.run, layout.gpt, o.packing, o.sources, layout.bundles(), layout.batch);
  Memory m{o, layout, comm};
  Run run(o.run, plan, m.arena, m.ctx, &comm);
  const LossTargets targets = m.batches.renumbered(text.targets());
  Events events(o.events, o.run, targets, run.log, comm);
  run.log.count_targets_with(targets);
  m.shard_stream.show(run.log);  // its bars in the timeline, its messages in the report
  m.replica_stream.show(run.log);
  AsyncSave saving(run, m.staging);
  train(o, layout, m, text, run, saving, events);
  m.scaler.report(run.log.extra());
  text.report(run.log, m.place);
  report_packing(run.log, sum_over(comm, m.packed), layout.gpt.seq_len);
  report_recompute(run.log, m.flops, layout.recompute.extra_flops(layout.gpt, m.last.rows));
  report_links(
      run.log,
      zero3_traffic(layout.params, o.ddp, o.precision, layout.recompute, o.zero3, layout.GA),
      m.shard_stream, replica_traffic(layout.local, o.ddp, layout.R), m.replica_stream);
  m.watch.report(run.log.extra());
  m.optimizer.report(run.log, m.flops.all);
  run.finish(events.validation(run.log.last_step(), validate(layout, m, text)));
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] {
    const ladder::Options o = ladder::parse_options(argc, argv);
    ladder::start_ranks(o.run, [&](ladder::Comm& comm) { run(o, comm); });
  });
}
