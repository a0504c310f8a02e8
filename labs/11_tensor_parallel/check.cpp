// An MLP that ranks split, forward and backward, and a softmax over columns that they share.
#include "labs/check.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "chapters/11_tensor_parallel/tensor_parallel.h"
#include "chapters/11_tensor_parallel/traffic.h"
#include "common/model/activations.h"
#include "common/model/init.h"
#include "common/random.h"
#include "labs/ranks.h"

namespace ladder::lab {
namespace {

constexpr int64_t kSequences = 2;
constexpr int64_t kRoom = kSequences + 1;  ///< sequences that buffers have room for

struct Case {
  GptConfig gpt;
  ActivationPlan plan;

  int ranks() const { return static_cast<int>(plan.tp); }
  /// Elements of the activations that are exchanged, of all tokens.
  int64_t elements() const { return kSequences * gpt.seq_len * gpt.channels; }
};

/// What one rank has found: tensors by their names, and bytes.
struct Found {
  std::vector<Row> forward, backward;
  int64_t sent = 0;
};

/// Part `rank` of `ranks` of the tokens of each sequence.
void fill(Tensor part, const std::vector<float>& whole, int64_t rank, int64_t ranks) {
  const int64_t n = part.size() / kSequences;
  for (int64_t b = 0; b < kSequences; ++b)
    std::copy_n(whole.begin() + (b * ranks + rank) * n, n, part.data<float>() + b * n);
}

/// What one rank has for a case.
struct Rank : OneRank {
  Rank(const Case& c, Comm& comm)
      : OneRank(comm, {.leaves = kLeaves / comm.size()}),
        params(c.gpt, 1, {comm.rank(), comm.size()}),
        tp(arena, ctx, comm, params, c.plan, kRoom) {}

  ParamLayout params;
  TensorParallel tp;
};

/// Half a block as in main.cpp of chapter 11, without the norm.
void exchange(const Sheet& sheet, const Case& c, Comm& comm, Found& found) {
  Rank r(c, comm);
  const Ctx& ctx = r.ctx;
  const Tensor weights = r.arena.zeros(Mem::Param, "params", Dtype::F32, {r.params.size()});
  const Tensor grads = r.arena.zeros(Mem::Grad, "grads", Dtype::F32, {r.params.size()});
  init_params(ctx, weights, r.params, sheet.seed());
  const BlockTensors p = r.params.view(weights).blocks[0], g = r.params.view(grads).blocks[0];
  const Activations a = alloc_activations(r.arena, c.gpt, kSequences, c.plan);
  const ActGrads d = alloc_act_grads(r.arena, c.gpt, kSequences, c.plan);
  const BlockActs& s = a.blocks[0];

  // With sequence parallelism a rank has some of the tokens, otherwise all of them.
  const int64_t parts = c.plan.sequence_ranks, part = parts > 1 ? comm.rank() : 0;
  fill(s.norm2, sheet.normals("norm2", c.elements()), part, parts);
  fill(d.stream, sheet.normals("gradient", c.elements()), part, parts);

  Log log(r.run, {.chapter = "11_tensor_parallel", .gpt = c.gpt, .layout = {}, .predicted = {}},
          r.arena, r.ctx, &comm);
  r.tp.show(log);
  log.begin_step();
  mlp_forward(ctx, r.tp.summand(a.product), s.mlp, r.tp.f_forward(ctx, s.norm2), p.mlp);
  r.tp.g_forward(ctx, a.product);
  const Tensor dout = r.tp.g_backward(ctx, d.stream);
  residual_backward_weight(ctx, g.residual2_b, dout, Into::Write);
  mlp_backward_input(ctx, r.tp.summand(d.branch), d.mlp, dout, s.mlp, p.mlp);
  r.tp.f_backward(ctx, d.branch);
  mlp_backward_weight(ctx, g.mlp, d.mlp, dout, r.tp.f_forward(ctx, s.norm2), s.mlp, Into::Write);
  log.end_step({.step = 0, .loss = 0, .grad_norm = 0, .lr = 0, .tokens = 0});

  found.forward = {{"after g", numbers(a.product)}};
  found.backward = {{"gradient of what f reads", numbers(d.branch)},
                    {"gradient of the bias after g", numbers(g.residual2_b)},
                    {"gradient of fc.b", numbers(g.mlp.fc.b)},
                    {"gradient of proj_w", numbers(g.mlp.proj_w)}};
  found.sent = r.tp.sent(log);
}

void run_exchange(Sheet& sheet, const Case& c) {
  const auto found =
      on_ranks<Found>(c.ranks(), [&](Comm& comm, Found& mine) { exchange(sheet, c, comm, mine); });
  for (size_t r = 0; r < found.size(); ++r) {
    write(sheet, "forward", r, found[r].forward);
    write(sheet, "backward", r, found[r].backward);
  }
  // An all-reduce at each f and g, in both directions. Where tokens are shared: three gathers, and
  // an all-reduce in place of each of two reduce-scatters. An all-reduce sends twice.
  const int64_t times = c.plan.sequence_ranks > 1 ? 3 + 2 * 2 : 4 * 2;
  sheet.without_idea("sent", times * (c.ranks() - 1) * 4 * c.elements());
  sheet.count("sent", sum_of(found, &Found::sent));
}

/// Targets, equal on all ranks; some are not to be learned.
void draw_targets(const Sheet& sheet, const GptConfig& gpt, Tensor targets) {
  const Random random(sheet.seed(), "targets");
  for (int64_t i = 0; i < targets.size(); ++i)
    targets.data<int32_t>()[i] =
        i % 5 == 3 ? kIgnore
                   : static_cast<int32_t>(
                         random.below(static_cast<uint64_t>(gpt.vocab), static_cast<uint64_t>(i)));
}

void share_softmax(const Sheet& sheet, const Case& c, Comm& comm, Found& found) {
  Rank r(c, comm);
  const int64_t T = c.gpt.seq_len, Vp = c.gpt.padded_vocab, own = Vp / c.ranks();
  const Tensor logits = r.arena.alloc(Mem::Activation, "logits", Dtype::F32, {kSequences, T, own});
  const std::vector<float> whole = sheet.normals("logits", kSequences * T * Vp);
  for (int64_t i = 0; i < kSequences * T; ++i)
    std::transform(whole.begin() + i * Vp + comm.rank() * own,
                   whole.begin() + i * Vp + (comm.rank() + 1) * own, logits.data<float>() + i * own,
                   [](float x) { return 4 * x; });
  const Tensor targets = r.arena.alloc(Mem::Activation, "targets", Dtype::I32, {kSequences, T});
  draw_targets(sheet, c.gpt, targets);
  const Tensor losses = r.arena.zeros(Mem::Activation, "losses", Dtype::F32, {kSequences});

  r.tp.localize(targets);
  const int64_t before = comm.statistics().wire_bytes();
  const SoftmaxSums all = r.tp.softmax(r.ctx, logits, targets);
  found.sent = comm.statistics().wire_bytes() - before;
  head_loss_and_gradient(r.ctx, losses, logits, all, targets, r.tp.own_vocab(), 0.25f);
  found.forward = {{"losses", numbers(losses)}, {"gradient of the logits", numbers(logits)}};
}

void run_softmax(Sheet& sheet, const Case& c) {
  const auto found = on_ranks<Found>(
      c.ranks(), [&](Comm& comm, Found& mine) { share_softmax(sheet, c, comm, mine); });
  for (size_t r = 0; r < found.size(); ++r) write(sheet, "softmax", r, found[r].forward);
  // Without the idea every rank gets all logits.
  sheet.without_idea("sent", (c.ranks() - 1) * 4 * kSequences * c.gpt.seq_len * c.gpt.padded_vocab);
  sheet.count("sent", sum_of(found, &Found::sent));
}

/// The formula for parts of a model: one has the embedding, the other the head.
void run_formula(Sheet& sheet, int64_t ranks) {
  GptConfig gpt = preset("tiny");
  gpt.seq_len = sheet.pick<int64_t>("positions", {32, 64});
  for (const int64_t sequence_ranks : {int64_t{1}, ranks})
    for (const Dtype dtype : {Dtype::F32, Dtype::BF16})
      for (const bool head : {false, true}) {
        ActivationPlan acts{.dtype = dtype};
        acts.tp = ranks;
        acts.sequence_ranks = sequence_ranks;
        const SplitLayers split{.blocks = sheet.pick<int64_t>("blocks", {3, 4}),
                                .again = sheet.pick<int64_t>("again", {1, 2}),
                                .embed = !head,
                                .head = head,
                                .gathers = sheet.pick<int64_t>("gathers", {3, 4})};
        sheet.text(fmt::format("formula/{} bytes, {} {}", size_of(dtype),
                               sequence_ranks > 1 ? "tokens shared," : "all tokens,",
                               head ? "with head" : "with embedding"),
                   fmt::format("{}", tp_traffic(gpt, acts, split, /*sequences=*/6)));
      }
}

}  // namespace

void cases(Sheet& sheet) {
  for (const int ranks : {2, sheet.pick("ranks", {4, 8})}) {
    Case c{.gpt = {.name = "lab",
                   .layers = 1,
                   .heads = ranks,
                   .channels = 16 * ranks,
                   .seq_len = sheet.pick<int64_t>("tokens", {8, 16}),
                   .positions = 16,
                   .vocab = sheet.pick<int64_t>("vocab", {37, 43, 47}),
                   .padded_vocab = 64},
           .plan = {}};
    c.plan.tp = ranks;
    sheet.run(fmt::format("{} ranks, a softmax of {} columns", ranks, c.gpt.vocab),
              [&] { run_softmax(sheet, c); });
    for (const int sequence_ranks : {1, ranks}) {
      c.plan.sequence_ranks = sequence_ranks;
      sheet.run(fmt::format("{} ranks, {}", ranks,
                            sequence_ranks == 1 ? "all tokens on each" : "tokens shared"),
                [&] { run_exchange(sheet, c); });
    }
    sheet.run(fmt::format("{} ranks, by formula", ranks), [&] { run_formula(sheet, ranks); });
  }
}

}  // namespace ladder::lab
