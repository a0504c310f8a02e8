// 33_mesh: all axes at once, chapters 13, 20 and 30 in one loop. Ranks split layers, sequences, the
// batch with its gradients and states, and the depth. Replicas are copies of all that.

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
#include "chapters/11_tensor_parallel/tensor_parallel.h"
#include "chapters/12_pipeline_parallel/proof/bubble.h"
#include "chapters/12_pipeline_parallel/stage.h"
#include "chapters/13_3d_parallel/proof/plan.h"
#include "chapters/13_3d_parallel/proof/plan_text.h"
#include "chapters/20_context_parallel/context_parallel.h"
#include "chapters/30_hsdp/hsdp.h"
#include "chapters/33_mesh/mesh_groups.h"
#include "common/comm/mesh.h"
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
  TensorParallelOptions tp;
  PipelineOptions pp;
  ContextOptions context;
  HsdpOptions hsdp;
  FullMeshOptions mesh;
};

Options parse_options(int argc, char** argv) {
  Options o;
  CommandLine("33_mesh: ranks that split layers, sequences, batch, states and stages")
      .read(argc, argv, o.run, o.sgd, o.optimizer, o.schedule, o.accumulate, o.clip, o.precision,
            o.loss_scale, o.recompute, o.ddp, o.tp, o.pp, o.context, o.hsdp, o.mesh);
  o.mesh.set_ranks(o.run, o.tp, o.context, o.pp, o.hsdp);
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

/// A rank holds its part of each layer of some blocks, and a shard of their gradients and optimizer
/// states. Of the micro-batches in flight it holds the activations of its own tokens.
struct Layout {
  const Options& o;
  int rank;

  // In this order: members use those above.
  GptConfig gpt = o.run.gpt();
  MeshShape mesh = o.mesh.shape(o.tp, o.context, o.pp, o.hsdp, o.run.ranks);
  MeshCoordinate at = mesh.coordinate(rank);  ///< where this rank stands
  int64_t tp = o.tp.degree(gpt, mesh[Axis::Tensor]), cp = o.context.degree(gpt, tp);
  int64_t S = mesh[Axis::Data], R = mesh[Axis::Replica];       ///< shards, and copies of all shards
  HsdpPlace place{S, at[Axis::Data] + at[Axis::Replica] * S};  ///< which sequences are here
  LocalTokens own = o.context.local_tokens(gpt, mesh, rank);
  GptConfig local_gpt = local_part(gpt, cp);  ///< with this rank's tokens of a sequence
  int64_t batch = o.run.batch;                ///< B, sequences of a step
  int64_t tokens = batch * gpt.seq_len;       ///< of a step
  Schedule schedule{o.schedule, o.run.lr, o.run.steps, tokens};
  int64_t share = o.ddp.share(batch, mesh[Axis::Data] * R);    ///< a rank's sequences of a step
  int64_t micro = o.context.micro(o.accumulate.micro(share));  ///< MBS, sequences of a micro-batch
  int64_t GA = micro_steps(o.ddp, batch, share, micro, S);     ///< micro-batches of a step
  /// The schedule: what each stage does in a step, in order.
  Pipeline pipeline = o.pp.pipeline(gpt, mesh[Axis::Pipeline], GA);
  StageLayout whole_stage{o.pp, gpt, at[Axis::Pipeline], pipeline};
  StageLayout stage{o.pp, local_gpt, at[Axis::Pipeline], pipeline};  ///< with local tokens
  /// This rank's part of each tensor of its stage, and the chunks of it that this rank updates.
  /// stage.position says which blocks the stage has.
  ParamLayout params{gpt, mesh[Axis::Context] * S, {at[Axis::Tensor], tp}, stage.position};
  ParamLayout local = params.shard(at[Axis::Context] + cp * at[Axis::Data]);
  // Not at once: other micro-batches come between a chunk's forward and its backward.
  Recompute recompute{o.recompute.policy, stage.model_chunk.layers, /*at_once=*/false};
  ActivationPlan acts = o.tp.plan(stage.plan(o.precision.plan(), recompute), local_gpt, tp);
  ContextShape context{own, gpt, acts.dtype, tp};

  Layout(const Options& o_, int rank_) : o(o_), rank(rank_) { check_tokens(o.tp, gpt, tp, cp); }

  /// Attentions of blocks that a step computes again, for one sequence.
  int64_t attention_again() const {
    return stage.times_again() * stage.position.chunks * recompute.attention_again();
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
  Ctx ctx = make_ctx(o.run, arena, device.get(),
                     {.flops = &flops.all,
                      .comm = &comm,
                      .leaves = kLeaves / layout.tp,
                      .token_chunks = kTokenChunks / layout.cp});
  Mesh mesh{comm, layout.mesh};
  MeshGroups groups{comm, layout.mesh};
  ContextParallel context{arena,          ctx,         mesh[Axis::Context], o.run, o.context.way,
                          layout.context, layout.micro};
  // Flat buffers: the weights that the optimizer updates, and those that the model reads.
  ShardedWeights weights{arena, layout.params, layout.local, o.precision};
  GptTensors w = layout.params.view(weights.compute);  // the latter, seen as a model
  CommStream shard_stream =
      open_comm_stream(arena, ctx, *groups.shards, o.run, o.ddp, layout.params.largest_section());
  CommStream replica_stream =
      open_comm_stream(arena, ctx, mesh[Axis::Replica], o.run, o.ddp, layout.local.grads().size());
  ShardedGrads grads{arena, shard_stream, layout.params, layout.local, o.accumulate, layout.GA};
  TensorParallel tp{arena,       ctx,         mesh[Axis::Tensor], layout.params, layout.local_gpt,
                    layout.acts, layout.micro};
  Optimizer optimizer{arena, layout.local, o.sgd, o.optimizer};
  LossScaler scaler{o.loss_scale, o.precision};
  Batch batch = alloc_batch(arena, layout.share, layout.own.size());  // this rank's tokens
  // (B): a loss for each sequence of all ranks, in memory shared with the host, which reads it.
  Tensor losses = arena.shared(Mem::Activation, "losses", Dtype::F32, {layout.batch});
  Tensor local_losses = arena.shared(Mem::Activation, "losses", Dtype::F32, {layout.share});
  Stage stage{arena, ctx, mesh[Axis::Pipeline], layout.stage, layout.acts, layout.micro};
  // Memory of grad_norm: digits of a sum of squares, which ranks add exactly (docs/same_bits.md).
  Tensor limbs = arena.shared(Mem::Workspace, "limbs", Dtype::I64, {1, kLimbs});
};

/// The bytes that Memory will take, by the formulas of the READMEs.
MemoryBytes predict(const Options& o, const Layout& layout) {
  const int64_t P = layout.params.size(), MBS = layout.micro, share = layout.share;
  MemoryBytes bytes;
  bytes[Mem::Param] = Weights::param_bytes(P, o.precision);
  bytes[Mem::Master] = Weights::master_bytes(layout.local.size(), o.precision);
  bytes[Mem::Optim] = Optimizer::bytes(layout.local, o.sgd, o.optimizer);
  // A token and its target: 8 bytes. A loss: 4.
  bytes[Mem::Activation] = 8 * share * layout.own.size() + 4 * (layout.batch + share);
  bytes[Mem::Workspace] = 8 * kLimbs + scratch_bytes(o.run);
  bytes[Mem::Comm] = CommStream::bytes(layout.cp * layout.S, layout.params.largest_section()) +
                     CommStream::bytes(layout.R, layout.local.grads().size());
  ShardedGrads::add_bytes(bytes, layout.params, layout.local, o.accumulate, layout.GA,
                          o.ddp.overlaps(layout.cp * layout.S));
  ContextParallel::add_bytes(bytes, o.context.way, layout.context, MBS);
  TensorParallel::add_bytes(bytes, layout.local_gpt, layout.acts, MBS, kTokenChunks / layout.cp);
  Stage::add_bytes(bytes, layout.stage, layout.acts, MBS);
  return bytes;
}

// ---- 4. data ------------------------------------------------------------------------------------

/// All that a checkpoint holds.
TrainingState training_state(const Layout& layout, Memory& m) {
  return {.layout = layout.local,
          .params = m.weights.master,
          .optim = m.optimizer.tensors(),
          .others{named_state("optimizer", m.optimizer), named_state("loss_scale", m.scaler)},
          .comm = m.groups.storage.get()};
}

/// Initial weights of this rank's chunks, or those of a checkpoint, gathered. Returns the first
/// step to take.
int64_t start(const Options& o, const Layout& layout, Memory& m) {
  fill_own_angles(m.arena, m.stage.angles(), layout.gpt.rope, layout.own);
  const int64_t step = load_or_init(m.ctx, o.run.load, o.run.seed, training_state(layout, m));
  m.weights.refresh(m.ctx, layout.local);
  all_gather(m.ctx, m.shard_stream, layout.params, m.weights.compute);
  return step;
}

// ---- 5. step ------------------------------------------------------------------------------------

/// Forward of block l of the model chunk. It reads stream(l) of its activations. f is a micro-batch
/// in flight; f_forward and g_forward are chapter 11's pair, of which the second sums what ranks
/// write to summand().
void forward_block(Memory& m, const InFlight& f, int64_t l) {
  const Ctx& ctx = m.ctx;
  const Activations& a = f.acts;
  const BlockTensors& p = m.w.blocks[f.first_block + l];
  const BlockActs& s = a.blocks[l];
  norm_forward(ctx, s.norm1, s.stat1, a.stream(l), p.norm1);
  qkv_forward(ctx, s.attn, m.tp.f_forward(ctx, s.norm1), p.attn);
  m.context.attend_forward(ctx, s.attn);
  proj_forward(ctx, m.tp.summand(a.product), s.attn, p.attn);
  m.tp.g_forward(ctx, a.product);
  residual_forward(ctx, s.mid, a.stream(l), a.product, p.residual1_b);

  norm_forward(ctx, s.norm2, s.stat2, s.mid, p.norm2);
  mlp_forward(ctx, m.tp.summand(a.product), s.mlp, m.tp.f_forward(ctx, s.norm2), p.mlp);
  m.tp.g_forward(ctx, a.product);
  residual_forward(ctx, s.out, s.mid, a.product, p.residual2_b);
}

/// Writes the output of the model chunk, and in the last one what the head reads. What backward
/// needs stays in the slot of the micro-batch, or is computed again.
void forward(Memory& m, const InFlight& f) {
  const Activations& a = f.acts;
  if (f.embed) {
    m.context.embed_forward(m.ctx, m.tp.summand(a.embed), f.tokens, m.w.embed);
    m.tp.g_forward(m.ctx, a.embed);
  }
  for (int64_t l = 0; l < std::ssize(a.blocks); ++l) {
    // If recomputation lets blocks share memory, block l overwrites what forward has kept of block
    // l - Recompute::sets().
    forward_block(m, f, l);
  }
  if (f.head) norm_forward(m.ctx, a.norm, a.stat, f.out(), m.w.norm);
}

/// Losses, and all gradients of the head and the last norm: the head's forward and backward.
void head(Memory& m, const InFlight& f, float scale) {
  m.grads.begin_section(m.ctx, m.grads.last_section());
  const GptTensors& dw = m.grads.view();
  const Activations& a = f.acts;
  const Tensor inp = m.tp.f_forward(m.ctx, a.norm);
  head_forward(m.ctx, a.logits, inp, m.w.head_w);
  const SoftmaxSums all = m.tp.softmax(m.ctx, a.logits, f.targets);
  head_loss_and_gradient(m.ctx, f.losses, a.logits, all, f.targets, m.tp.own_vocab(), scale);
  m.context.sum_losses(f.losses);
  head_backward_input(m.ctx, m.tp.summand(f.grads.head), a.logits, m.w.head_w);
  head_backward_weight(m.ctx, dw.head_w, a.logits, inp, Into::Write);
  m.tp.f_backward(m.ctx, f.grads.head);
  norm_backward_input(m.ctx, f.dout(), f.grads.head, f.out(), a.stat, m.w.norm);
  m.tp.norm_backward_weight(m.ctx, dw.norm, f.grads.head, f.out(), a.stat, Into::Write);
  m.grads.end_section(m.grads.last_section());
}

/// Before backward of block l: computes again what forward has dropped of it and of its segment.
void recompute_segment(Memory& m, const Recompute& recompute, const InFlight& f, int64_t l) {
  const StepFlops::Recomputing counted(m.flops);
  const Activations& a = f.acts;
  const Range segment = recompute.segment_before(l);
  for (int64_t b = segment.begin; b < segment.end; ++b) forward_block(m, f, b);
  DroppedParts parts = recompute.parts_before(l);
  // Attention is computed again here, in chapter 20's way, and no longer by recompute_parts().
  if (std::exchange(parts.attention, false)) m.context.attend_forward(m.ctx, a.blocks[l].attn);
  recompute_parts(m.ctx, parts, a.blocks[l], a.stream(l), m.w.blocks[f.first_block + l]);
}

/// Gradients of the input of block l of the model chunk, and of all activations inside the block:
/// d.read2 and d.read1 are those of what mlp and attn have read, d.mid is that of the stream
/// between them.
void backward_input(Memory& m, const InFlight& f, const BlockTensors& p, int64_t l) {
  const Ctx& ctx = m.ctx;
  const BlockActs& s = f.acts.blocks[l];
  const BlockGrads& d = f.grads.block(l);
  const Tensor dout = m.tp.g_backward(ctx, f.grads.stream(l + 1));
  mlp_backward_input(ctx, m.tp.summand(d.read2), d.mlp, dout, s.mlp, p.mlp);
  m.tp.f_backward(ctx, d.read2);
  norm_backward_input(ctx, f.grads.norm, d.read2, s.mid, s.stat2, p.norm2);
  residual_backward_input(ctx, d.mid, f.grads.stream(l + 1), f.grads.norm);

  const Tensor dmid = m.tp.g_backward(ctx, d.mid);
  proj_backward_input(ctx, d.attn, dmid, p.attn);
  m.context.attend_backward_input(ctx, d.attn, s.attn);
  qkv_backward_input(ctx, m.tp.summand(d.read1), d.attn, s.attn, p.attn);
  m.tp.f_backward(ctx, d.read1);
  norm_backward_input(ctx, f.grads.norm, d.read1, f.acts.stream(l), s.stat1, p.norm1);
  residual_backward_input(ctx, f.grads.stream(l), d.mid, f.grads.norm);
}

/// Gradients of the parameters of block l, from those of its activations. They go to the ranks that
/// have their shards.
void backward_weight(Memory& m, const InFlight& f, int64_t l) {
  const Ctx& ctx = m.ctx;
  const Into into = Into::Write;
  const int64_t block = f.first_block + l;
  m.grads.begin_section(ctx, block + 1);
  const BlockTensors& g = m.grads.view().blocks[block];
  const BlockActs& s = f.acts.blocks[l];
  const BlockGrads& d = f.grads.block(l);
  const Tensor dout = m.tp.g_backward(ctx, f.grads.stream(l + 1));
  residual_backward_weight(ctx, g.residual2_b, dout, into);
  mlp_backward_weight(ctx, g.mlp, d.mlp, dout, m.tp.f_forward(ctx, s.norm2), s.mlp, into);
  m.tp.norm_backward_weight(ctx, g.norm2, d.read2, s.mid, s.stat2, into);

  const Tensor dmid = m.tp.g_backward(ctx, d.mid);
  residual_backward_weight(ctx, g.residual1_b, dmid, into);
  attn_backward_weight(ctx, g.attn, d.attn, dmid, m.tp.f_forward(ctx, s.norm1), s.attn, into);
  m.tp.norm_backward_weight(ctx, g.norm1, d.read1, f.acts.stream(l), s.stat1, into);
  m.grads.end_section(block + 1);
}

/// The gradients that `action` asks for, of all blocks of its model chunk and of the embedding.
void backward(Memory& m, const InFlight& f, const Action& action) {
  const bool input = wants_input(action.what), weight = wants_weight(action.what);
  for (int64_t l = std::ssize(f.acts.blocks); l-- > 0;) {  // the last block first
    recompute_segment(m, m.layout.recompute, f, l);

    if (input) backward_input(m, f, m.w.blocks[f.first_block + l], l);
    if (weight) backward_weight(m, f, l);
  }
  if (!weight || !f.embed) return;
  m.grads.begin_section(m.ctx, 0);
  const Tensor dembed = m.tp.g_backward(m.ctx, f.grads.stream(0));
  m.context.embed_backward_weight(m.ctx, m.grads.view().embed, dembed, f.tokens, Into::Write);
  m.grads.end_section(0);
}

/// One action of this stage's list, in a step of GA micro-batches.
void perform(Memory& m, const InFlight& f, const Action& action, float scale, int64_t GA) {
  if (m.stage.send_or_receive(f, action.what)) return;  // sent, or received
  if (action.what == Do::Forward) return forward(m, f);
  m.grads.begin(action.micro, GA);
  if (f.head && wants_input(action.what)) head(m, f, scale);
  backward(m, f, action);
}

/// Gives every rank the losses of all sequences, in m.losses, in the order of the batch. The last
/// stage sends its own to the other stages. Then shards gather those of each micro-step, and at the
/// end replicas gather all.
void gather_losses(const Layout& layout, Memory& m) {
  const int64_t MBS = layout.micro, S = layout.S, first = layout.place.first_of_group(layout.share);
  m.mesh[Axis::Pipeline].broadcast(m.local_losses, layout.stage.last());
  for (int64_t k = 0; k < layout.GA; ++k)
    m.mesh[Axis::Data].all_gather(m.losses.slice(first + k * S * MBS, S * MBS),
                                  m.local_losses.slice(k * MBS, MBS));
  m.mesh[Axis::Replica].all_gather(m.losses, m.losses.slice(first, S * layout.share));
}

/// One batch: loss, gradients of this rank's share, sums over ranks and update of its chunks.
StepRecord train_step(const Options& o, const Layout& layout, Memory& m, const Text& text, Log& log,
                      int64_t step) {
  const int64_t MBS = layout.micro, GA = layout.GA;
  m.flops = {};
  m.context.begin_step();
  for (int64_t k = 0; k < GA; ++k) {
    text.draw(m.context.whole(), o.run.seed, step, layout.place.first(layout.share, k, MBS));
    m.context.take(m.batch.slice(k * MBS, MBS));
  }
  const int64_t of_group = sum_over(*m.groups.shards, count_targets(m.batch));
  const int64_t targets = sum_over(m.mesh[Axis::Replica], of_group);
  m.tp.localize(m.batch);  // from here on row numbers in this rank's part of the vocabulary
  // The loss is a mean over all targets of the batch, so each target weighs 1 / targets. FP16
  // multiplies this weight by the loss scale, a power of two.
  const float scale = m.scaler.scale() / static_cast<float>(targets);

  m.stage.begin_step();
  for (const Action& action : layout.stage.actions) {
    const ActionTimes::Scope time(m.stage.times);  // for the report
    perform(m, m.stage.begin_action(action, m.batch, m.local_losses, MBS), action, scale, GA);
  }
  m.stage.end_step();
  gather_losses(layout, m);
  sum_over_replicas(m.ctx, m.replica_stream, m.grads.sum(m.ctx));
  const Shard grads = m.grads.finish(m.ctx);
  m.scaler.unscale(m.ctx, grads.tensor);
  const float loss = mean_loss(m.ctx, m.losses, targets);
  // Over ranks that have the model once: with replicas each gradient would count R times.
  const double norm = grad_norm(m.ctx, grads, layout.local, m.limbs, m.groups.model.get());

  const float lr = layout.schedule.lr(step);
  const std::string bad = m.scaler.end_step(loss, norm);
  if (bad.empty()) {
    clip_global_norm(m.ctx, grads.tensor, norm, o.clip.clip);
    m.optimizer.step(m.ctx, m.weights.master, grads, lr);
    m.weights.refresh(m.ctx, layout.local);
    all_gather(m.ctx, m.shard_stream, layout.params, m.weights.compute);
  } else {
    log.skipped(step, bad);
  }
  return {.step = step, .loss = loss, .grad_norm = norm, .lr = lr, .tokens = layout.tokens};
}

/// Forward of a batch, which is alone in the pipeline, through all stages. Returns the tensors of
/// this stage's last chunk. f.embed says whether a chunk has the embedding; f.acts.embed is what
/// its first block reads, from the embedding or from the stage before.
InFlight forward_all(Memory& m, const Batch& batch, Tensor losses) {
  for (int64_t chunk = 0;; ++chunk) {
    const InFlight f = m.stage.by_itself(chunk, batch, losses);
    if (!f.embed) m.stage.activations.recv(f.acts.embed);
    forward(m, f);
    if (!f.head) m.stage.activations.send(f.out());
    if (chunk + 1 == m.layout.stage.position.chunks) return f;
  }
}

/// Mean loss of the held-out text, shared among pipelines.
float validate(const Layout& layout, Memory& m, const Text& text) {
  Validation v(m.ctx, m.groups.batch.get(), text, m.context.whole(), m.losses, layout.micro);
  while (v.next()) {
    const Batch own = m.batch.slice(0, v.count());
    m.context.take(own);
    m.tp.localize(own);
    const InFlight f = forward_all(m, own, v.losses());
    if (f.head) {
      head_forward(m.ctx, f.acts.logits, m.tp.f_forward(m.ctx, f.acts.norm), m.w.head_w);
      const SoftmaxSums all = m.tp.softmax(m.ctx, f.acts.logits, f.targets);
      head_loss(m.ctx, f.losses, f.acts.logits, all, f.targets, m.tp.own_vocab());
      m.context.sum_losses(f.losses);
    }
    m.mesh[Axis::Pipeline].broadcast(v.losses(), layout.stage.last());
  }
  return v.mean();
}

void train(const Options& o, const Layout& layout, Memory& m, const Text& text, Run& run) {
  for (int64_t step = start(o, layout, m); run.goes_on(step); ++step) {
    run.begin_step();
    const StepRecord record = train_step(o, layout, m, text, run.log, step);
    run.end_step(record);
    if (run.tracing())
      run.log.trace(record,
                    param_hash(m.ctx, m.weights.master, layout.local, m.groups.model.get()));
    if (run.eval_due(step)) run.log.eval(step, validate(layout, m, text));
    if (run.save_due(step)) run.saver.save(training_state(layout, m), step + 1);
  }
}

// ---- 6. report ----------------------------------------------------------------------------------

/// What a rank will hold, and send in a step.
RankPlan plan_of(const Options& o, int rank) {
  const Layout l(o, rank);
  const int64_t layers = l.stage.position.chunks * l.stage.model_chunk.layers;
  return {.run{.chapter = "33_mesh",
               .gpt = l.gpt,
               .layout = run_layout(o.run, l.micro, l.mesh),
               .predicted = predict(o, l)},
          .stage = l.whole_stage,
          .recompute = l.recompute,
          .sent{{Axis::Tensor, tp_traffic_of_stage(l.stage, l.acts, l.recompute, l.share, l.cp)},
                {Axis::Context, ContextParallel::traffic(o.context.way, l.context, l.share, layers,
                                                         l.attention_again())},
                {Axis::Data, zero2_traffic(l.params, o.ddp, o.precision, l.GA)},
                {Axis::Replica, replica_traffic(l.local, o.ddp, l.R)},
                {Axis::Pipeline, l.stage.traffic(l.acts, l.share)}}};
}

/// The plans of all ranks.
MeshPlan plan_of_mesh(const Options& o) {
  const MeshShape mesh = o.mesh.shape(o.tp, o.context, o.pp, o.hsdp, o.run.ranks);
  return {mesh, std::bind_front(plan_of, o), kAxes, groups_text(mesh)};
}

void run(Options o, Comm& comm) {
  o.run.ranks = comm.size();  // under mpirun the processes are the ranks
  const Layout layout(o, comm.rank());
  const MeshPlan plan = plan_of_mesh(o);
  const Text text(o.run.text(layout.gpt));
  Memory m{o, layout, comm};
  Run run(o.run, plan.of(comm.rank()).run, m.arena, m.ctx, &comm);
  run.log.note(plan_text(plan));
  for (const Axis axis : kAxes) run.log.count(m.mesh[axis]);  // their messages, in the report
  m.tp.show(run.log);
  m.context.show(run.log);
  m.shard_stream.show(run.log);  // its bars in the timeline, its messages in the report
  m.replica_stream.show(run.log);
  m.stage.show(run.log);
  train(o, layout, m, text, run);
  m.scaler.report(run.log.extra());
  const int64_t above_mean = m.context.flops_above_mean(layout.gpt.head_size());
  report_recompute(
      run.log, m.flops,
      layout.whole_stage.extra_flops(layout.recompute, layout.share) / (layout.tp * layout.cp) +
          layout.share * layout.attention_again() * above_mean);
  const AxisTraffic sent = {{Axis::Tensor, m.tp.sent(run.log)},
                            {Axis::Context, m.context.sent(run.log)},
                            {Axis::Data, run.log.sent_in_step(m.shard_stream.group())},
                            {Axis::Replica, run.log.sent_in_step(m.replica_stream.group())},
                            {Axis::Pipeline, m.stage.sent(run.log)}};
  report_axes(run.log, comm, plan, sent);
  m.stage.report(run.log, layout.pipeline);
  run.finish(validate(layout, m, text));
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] {
    const ladder::Options o = ladder::parse_options(argc, argv);
    if (o.run.plan_only) return ladder::show_plan(o.run, ladder::plan_of_mesh(o));
    ladder::start_ranks(o.run, [&](ladder::Comm& comm) { run(o, comm); });
  });
}
