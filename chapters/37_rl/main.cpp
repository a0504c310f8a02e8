// 37_rl: a model learns from what its own answers earn (GRPO), or from pairs of which one answer is
// better (DPO). The program that draws answers and the one that trains have the same bits.

#include "chapters/02_adamw/optimizer.h"
#include "chapters/03_schedules/schedule.h"
#include "chapters/04_clipping/accumulate.h"
#include "chapters/04_clipping/clip.h"
#include "chapters/05_mixed_precision/loss_scaler.h"
#include "chapters/05_mixed_precision/precision.h"
#include "chapters/06_checkpointing/recompute.h"
#include "chapters/07_ddp/ddp.h"
#include "chapters/26_packing/bundles.h"
#include "chapters/37_rl/rl.h"
#include "chapters/37_rl/source.h"
#include "common/model/activations.h"
#include "common/model/init.h"
#include "common/model/measure.h"
#include "common/run/backend.h"
#include "common/run/run.h"
#include "common/run/run_main.h"

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
  RlOptions rl;
};

Options parse_options(int argc, char** argv) {
  Options o;
  RlFlags flags(o.rl, o.run);
  CommandLine("37_rl: preferences and rewards")
      .read(argc, argv, flags, o.run, o.sgd, o.optimizer, o.schedule, o.accumulate, o.clip,
            o.precision, o.loss_scale, o.recompute, o.ddp);
  return o;
}

// ---- 2. layout ----------------------------------------------------------------------------------

/// Every rank holds the whole model, and the activations of a micro-batch of bundles of its share.
struct Layout {
  const Options& o;

  // In this order: members use those above.
  GptConfig gpt = o.run.gpt();
  ParamLayout params{gpt};
  PackOptions packing = o.rl.packing(gpt.seq_len);
  int64_t batch = o.run.batch;               ///< B, bundles of a step: prompts with their answers
  int64_t G = o.rl.group();                  ///< answers of a bundle
  int64_t tokens = batch * G * gpt.seq_len;  ///< of a step, if its rows were full
  Schedule schedule{o.schedule, o.run.lr, o.run.steps, tokens};
  int64_t N = o.run.ranks;                                     ///< ranks
  int64_t share = o.ddp.share(batch, N);                       ///< bundles of a step on one rank
  int64_t micro = o.accumulate.micro(share);                   ///< MBS, bundles of a micro-batch
  int64_t rows = micro * packing.rows(gpt.seq_len);            ///< of a micro-batch at most
  int64_t GA = share / micro;                                  ///< micro-batches of a step
  int64_t turns = turns_of_bundle(packing.most(gpt.seq_len));  ///< losses of a bundle
  Recompute recompute{o.recompute.policy, gpt.layers};
  ActivationPlan acts = recompute.plan(o.precision.plan());

  explicit Layout(const Options& o_) : o(o_) {}
  /// Which bundles of a step a rank has.
  Range bundles(int64_t rank) const { return {rank * share, (rank + 1) * share}; }
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
  GptTensors w = layout.params.view(weights.compute);
  // Gradients, in as many buffers as the micro-steps take.
  GradTree grads{arena, layout.params, o.accumulate, layout.GA};
  CommStream comm_stream =
      open_comm_stream(arena, ctx, comm, o.run, o.ddp, Ddp::largest_message(layout.params, o.ddp));
  Ddp ddp{comm_stream, layout.params, o.ddp};
  Optimizer optimizer{arena, layout.params, o.sgd, o.optimizer};
  LossScaler scaler{o.loss_scale, o.precision};
  // This rank's share, and a loss for each turn of all ranks.
  BundleBatch batch{arena, layout.packing, layout.share, layout.micro, layout.gpt.seq_len};
  Tensor losses =
      arena.shared(Mem::Activation, "all_losses", Dtype::F32, {layout.batch * layout.turns});
  AnswerTensors answers{arena, layout.rows, layout.gpt.seq_len, layout.batch* layout.G,
                        layout.share* layout.G};
  AnswerSource source{arena, o.rl, o.run, layout.gpt, w, o.precision, comm};
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
                           BundleBatch::bytes(layout.packing, layout.share, layout.gpt.seq_len) +
                           4 * layout.batch * layout.turns +
                           AnswerTensors::bytes(rows, layout.gpt.seq_len, layout.batch * layout.G,
                                                layout.share * layout.G);
  bytes[Mem::Workspace] =
      act_grad_bytes(layout.gpt, rows, layout.acts) + 8 * kLimbs + scratch_bytes(o.run);
  bytes[Mem::Comm] = CommStream::bytes(o.run.ranks, Ddp::largest_message(layout.params, o.ddp));
  GradTree::add_bytes(bytes, layout.params, o.accumulate, layout.GA);
  AnswerSource::add_bytes(bytes, o.rl, layout.gpt, o.precision);
  return bytes;
}

// ---- 4. data ------------------------------------------------------------------------------------

/// All that a checkpoint holds.
TrainingState training_state(const Layout& layout, Memory& m) {
  TrainingState state{
      .layout = layout.params,
      .params = m.weights.master,
      .optim = m.optimizer.tensors(),
      .others{named_state("optimizer", m.optimizer), named_state("loss_scale", m.scaler)},
      .comm = &m.comm};
  // Between two updates the answers belong to weights that are gone.
  if (m.o.rl.updates > 1) state.others.push_back(named_state("rollout", m.source.rollout));
  return state;
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

/// Losses of all tokens of answers, under the weights m.w: minus their log-probabilities.
void score(Memory& m, const Activations& a, const Bundles& part) {
  // From here on every kernel takes a document for a sequence.
  m.ctx.documents = part.documents;
  forward(m, a, part.rows.tokens);
  head_forward(m.ctx, a.logits, a.norm, m.w.head_w);
  if (const auto temperature = static_cast<float>(m.o.rl.temperature); temperature != 1)
    m.ctx.kernels->scale(m.ctx, a.logits, 1 / temperature);
  // As the sampler does: each token is a sequence of its own.
  const int64_t n = part.rows.targets.size();
  m.ctx.documents = {};
  head_loss(m.ctx, m.answers.flat_losses().first(n),
            a.logits.view({n, 1, m.layout.gpt.padded_vocab}), part.rows.targets.view({n, 1}),
            m.layout.gpt.vocab);
  m.ctx.documents = part.documents;
  m.ctx.synchronize();
}

/// The head's backward from weights of tokens: the gradient of its input into d.branch, and that of
/// its weights. Tokens with one weight share a call.
void head_backward(Memory& m, const GptTensors& dw, const Activations& a, const ActGrads& d,
                   const Bundles& part, Into into) {
  const int64_t n = part.rows.targets.size();
  const Tensor logits = a.logits.view({n, 1, m.layout.gpt.padded_vocab}),
               targets = part.rows.targets.view({n, 1});
  m.ctx.documents = {};
  for_runs(m.answers.weights, part.rows.targets, [&](int64_t first, int64_t count, float weight) {
    head_loss_and_gradient(m.ctx, m.answers.flat_losses().slice(first, count),
                           logits.slice(first, count), targets.slice(first, count),
                           m.layout.gpt.vocab, weight);
  });
  m.ctx.documents = part.documents;
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

/// Gradients of all parameters but the head's, from d.branch, which `head_backward` has written.
/// They go to the other ranks section by section.
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
    section_done(m, l + 1, k, GA);
  }
  embed_backward_weight(ctx, dw.embed, d.stream, tokens, into);
  section_done(m, 0, k, GA);
}

/// Scores pairs, shared among ranks. Calls f(the rows of some of them, how many pairs are before).
template <class F>
void for_pairs(const Layout& layout, Memory& m, std::span<Scored> pairs, F&& f) {
  const int64_t n = std::ssize(pairs) / 2, each = layout.micro;
  for (int64_t first = m.comm.rank() * each; first < n; first += layout.N * each) {
    const std::span<Scored> some = pairs.subspan(2 * first, 2 * std::min(each, n - first));
    fill(m.batch, some, 2);
    const Bundles part = m.batch.slice(m.ctx, 0, std::ssize(some) / 2);
    score(m, m.acts.first(part.row_count()), part);
    f(m.answers.rows_of(some), first);
  }
  m.ctx.documents = {};
}

/// Weights of --base, or those of a checkpoint. Returns the first step to take.
int64_t start(const Options& o, const Layout& layout, Memory& m) {
  const TrainingState state = training_state(layout, m);
  if (m.source.base) m.source.base->load(m.ctx, o.rl.base);
  if (m.comm.rank() == 0)
    load_parameters(m.ctx, o.rl.base,
                    {.layout = layout.params, .params = m.weights.master, .optim = {}});
  m.comm.broadcast(m.weights.master, 0);
  m.weights.refresh(m.ctx);
  // DPO computes the log-probabilities of --base once, and keeps them.
  for_pairs(layout, m, m.source.pairs, [](const std::vector<AnswerRow>& rows, int64_t) {
    for (const AnswerRow& row : rows) row.answer->logprobs = row.log_probs();
  });
  if (o.rl.objective.of_pairs()) m.source.exchange_pairs();
  // A checkpoint also has the step and the optimizer's states, which every rank needs.
  if (o.run.load.empty()) return 0;
  const int64_t step = load_or_init(m.ctx, o.run.load, o.run.seed, state);
  m.weights.refresh(m.ctx);
  return step;
}

/// One update: loss, gradients of this rank's share, their sum over ranks, update.
StepRecord train_step(const Options& o, const Layout& layout, Memory& m, Log& log, int64_t step) {
  const int64_t MBS = layout.micro, GA = layout.GA, G = layout.G;
  const Range bundles = layout.bundles(m.comm.rank());
  m.source.next(m.ctx, step, layout.batch, bundles);
  Rollout& rollout = m.source.rollout;
  m.flops = {};
  const std::span<Scored> own =
      std::span(rollout.answers).subspan(bundles.begin * G, bundles.size() * G);
  fill(m.batch, own, G);
  // The loss is a mean over all tokens of the batch, or over its pairs. FP16 multiplies it by the
  // loss scale, a power of two.
  const int64_t divisor = o.rl.divisor(rollout);
  const double scale = m.scaler.scale() / static_cast<double>(divisor);

  for (int64_t k = 0; k < GA; ++k) {
    const Bundles part = m.batch.slice(m.ctx, k * MBS, MBS);
    const Activations acts = m.acts.first(part.row_count());
    const ActGrads dacts = m.dacts.first(part.row_count());
    std::vector<AnswerRow> rows = m.answers.rows_of(own.subspan(k * MBS * G, MBS * G));
    if (m.source.base) {
      std::swap(m.w, m.source.base->w);
      score(m, acts, part);
      std::swap(m.w, m.source.base->w);
      for (AnswerRow& row : rows) row.base = row.log_probs();
    }
    m.grads.begin(k);
    score(m, acts, part);
    // Logits were divided by the temperature, so their gradient is, too.
    weigh(o.rl, rows, scale / o.rl.temperature, part.losses,
          m.answers.own_counts.slice(k * MBS * G, MBS * G));
    head_backward(m, m.grads.view(), acts, dacts, part, m.grads.into());
    backward(m, layout, k, GA, acts, dacts, part.rows.tokens);
    m.grads.close(k, GA);
  }
  m.ctx.documents = {};
  m.ddp.wait(m.ctx, m.grads.sum());
  const Tensor grads = m.grads.finish(m.ctx);
  m.comm.all_gather(m.losses, m.batch.losses());  // the mean is a sum over all turns, in order
  m.comm.all_gather(m.answers.counts, m.answers.own_counts);
  m.scaler.unscale(m.ctx, grads);
  const float loss = mean_loss(m.ctx, m.losses, divisor);
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
  const auto others = step_numbers(o.rl, rollout, m.answers.counts);
  log.extra()["rl"].push_back(others);
  return {.step = step,
          .loss = loss,
          .grad_norm = norm,
          .lr = lr,
          .tokens = rollout.tokens(),
          .others = others};
}

/// Of what is held out. GRPO: the share of tasks that fail. DPO: the mean loss.
float validate(const Options& o, const Layout& layout, Memory& m) {
  if (!o.rl.objective.of_pairs()) return m.source.failed(m.ctx);
  std::vector<float> losses(o.rl.held_out().size());
  for_pairs(layout, m, std::span(m.source.pairs).subspan(2 * o.rl.trained()),
            [&](const std::vector<AnswerRow>& rows, int64_t first) {
              for (size_t i = 0; i < rows.size(); i += 2)
                losses[first + i / 2] =
                    dpo_pair(o.rl.objective, rows[i].sums(), rows[i + 1].sums()).loss;
            });
  m.comm.all_reduce({.ptr = losses.data(), .dtype = Dtype::F32, .shape = {std::ssize(losses)}});
  return std::accumulate(losses.begin(), losses.end(), 0.0) / std::ssize(losses);
}

void train(const Options& o, const Layout& layout, Memory& m, Run& run) {
  for (int64_t step = start(o, layout, m); run.goes_on(step); ++step) {
    run.begin_step();
    const StepRecord record = train_step(o, layout, m, run.log, step);
    run.end_step(record);
    if (run.tracing()) run.log.trace(record, param_hash(m.ctx, m.weights.master, layout.params));
    if (run.eval_due(step)) run.log.eval(step, validate(o, layout, m));
    if (run.save_due(step)) run.saver.save(training_state(layout, m), step + 1);
  }
}

// ---- 6. report ----------------------------------------------------------------------------------

void run(Options o, Comm& comm) {
  o.run.ranks = comm.size();  // under mpirun the processes are the ranks
  const Layout layout(o);
  const RunPlan plan{.chapter = "37_rl",
                     .gpt = layout.gpt,
                     .layout = run_layout(o.run, layout.micro, {{Axis::Data, o.run.ranks}}),
                     .predicted = predict(o, layout)};
  if (o.run.plan_only) return show_plan(o.run, plan, &comm);
  Memory m{o, layout, comm};
  if (o.rl.role == RolloutRole::Sample) {
    m.source.next(m.ctx, start(o, layout, m), layout.batch, layout.bundles(comm.rank()));
    return m.source.commit();
  }
  Run run(o.run, plan, m.arena, m.ctx, &comm);
  run.log.count_targets_with(no_bytes());
  m.comm_stream.show(run.log);  // its bars in the timeline, its messages in the report
  train(o, layout, m, run);
  m.source.commit();
  m.scaler.report(run.log.extra());
  report_recompute(run.log, m.flops,
                   layout.recompute.extra_flops(layout.gpt, m.batch.counts().rows));
  report_traffic(run.log, ddp_traffic(layout.params, o.ddp, o.run.ranks), m.comm_stream);
  run.finish(validate(o, layout, m));
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  return ladder::run_main([&] {
    const ladder::Options o = ladder::parse_options(argc, argv);
    ladder::start_ranks(o.run, [&](ladder::Comm& comm) { run(o, comm); });
  });
}
