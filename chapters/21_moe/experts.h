// Memory of a layer of experts. E experts replace the MLP, and a router gives each token k of them.
//
//   logits = x R^T           R (E,C); always in FP32, whatever --precision says
//   scores = softmax(logits), or a sigmoid of each
//   a token takes the k experts of its largest scores; weight_j = score_j / sum of its k scores
//   out    = sum_j weight_j SwiGLU_j(x), a tree over experts
//
// Nothing is padded. There are M = k B T pairs of a token and an expert. Each pair has a row, and
// rows are sorted by expert. So the rows of an expert lie together, and one grouped product
// multiplies the rows of each expert by its own matrix. With --capacity f, an expert takes only the
// first ceil(f k T / E) tokens of each sequence that choose it. It drops later ones, and gives no
// output for them.
//
//   numbers per token      kept of a block             shared by all blocks
//   (one MLP)              3 F                         4 F
//   experts                2 E, 4 k (weight, indices)  E + k (gradients of logits and weights)
//                          k (3 F + C)                 k (3 F + 2 C)
//
// A block also keeps 4 (E + 1) bytes of offsets. With 16-bit activations the numbers of the router
// are still FP32. Its input (C numbers per token) and its matrix (E C) are then copied to FP32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/model/activations.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder {

/// What the experts of one block keep.
struct ExpertActs {
  Tensor logits, scores;  ///< (B,T,E) F32
  Tensor expert;          ///< (B,T,k) I32, ascending
  Tensor weight;          ///< (B,T,k) F32
  ExpertRows rows;        ///< which of M rows each pair of a token and an expert has
  Tensor fc, act;         ///< (M,2F), (M,F)
  Tensor out;             ///< (M,C), outputs of experts before weighting
  Tensor load;            ///< (B,E) I32, how many tokens chose each expert
  Tensor losses;          ///< (2,B), the balance loss and the z-loss of each sequence
};

/// What all blocks share: inputs of experts, and gradients.
struct ExpertScratch {
  Tensor inp;          ///< (M,C)
  Tensor drows;        ///< (M,C), of the experts' outputs, then of their inputs
  Tensor dfc, dact;    ///< (M,2F), (M,F)
  Tensor dweight;      ///< (B,T,k) F32
  Tensor dlogits;      ///< (B,T,E) F32
  Tensor wide_tokens;  ///< (B,T,C) F32 if activations are narrow; else null
  Tensor wide_router;  ///< (E,C) F32, on the same condition
};

/// Memory of the experts of all blocks.
class ExpertLayers {
 public:
  /// @param batch, micro sequences of a step, and of a micro-batch
  ExpertLayers(Arena& arena, const GptConfig& config, int64_t batch, int64_t micro,
               const ActivationPlan& plan, int64_t capacity)
      : config_(config), capacity_(capacity), micro_(micro) {
    const int64_t E = config.experts.count, L = config.layers;
    if (E == 0) return;
    const auto sets = static_cast<size_t>(plan.set_count(L));
    for (size_t i = 0; i < sets; ++i) kept_.push_back(alloc_kept(arena, plan));
    scratch_ = alloc_scratch(arena, plan);
    // Loads and losses of all micro-batches of a step, because the host reads them after the step.
    load_ = arena.shared(Mem::Activation, "load", Dtype::I32, {L, batch, E});
    losses_ = arena.shared(Mem::Activation, "router_losses", wide(plan.dtype),
                           {L * ceil_div(batch, micro), 2 * micro});
    begin(0, micro);
  }

  /// The following calls are for micro-batch k of a step. It has `count` sequences.
  void begin(int64_t k, int64_t count) {
    first_ = k;
    count_ = count;
  }
  /// What block l keeps for that micro-batch.
  ExpertActs acts(size_t l) const {
    ExpertActs s = kept_[l % kept_.size()];
    const int64_t n = count_, M = n * rows_of(1), block = static_cast<int64_t>(l);
    for (Tensor* of_tokens : {&s.logits, &s.scores, &s.expert, &s.weight, &s.rows.row})
      *of_tokens = of_tokens->first(n);
    for (Tensor* of_rows : {&s.rows.from, &s.fc, &s.act, &s.out}) *of_rows = of_rows->first(M);
    const int64_t micros = losses_.dim(0) / config_.layers;
    s.load = load(block).slice(first_ * micro_, n);
    s.losses =
        losses_.slice(block * micros + first_, 1).view({2 * micro_}).first(2 * n).view({2, n});
    return s;
  }
  ExpertScratch scratch() const {
    ExpertScratch s = scratch_;
    const int64_t M = count_ * rows_of(1);
    for (Tensor* of_rows : {&s.inp, &s.drows, &s.dfc, &s.dact}) *of_rows = of_rows->first(M);
    for (Tensor* of_tokens : {&s.dweight, &s.dlogits}) *of_tokens = of_tokens->first(count_);
    if (s.wide_tokens) s.wide_tokens = s.wide_tokens.first(count_);
    return s;
  }
  int64_t capacity() const { return capacity_; }

  /// The load (B,E) of block l in a step, for the host.
  Tensor load(int64_t l) const { return load_.slice(l, 1).view({load_.dim(1), load_.dim(2)}); }
  /// The losses (micro-batches, 2 MBS) of block l in a step, for the host.
  Tensor losses(int64_t l) const {
    const int64_t micros = losses_.dim(0) / config_.layers;
    return losses_.slice(l * micros, micros);
  }

  /// Bytes of Activation: those of the table above, and of loads and losses.
  static int64_t activation_bytes(const GptConfig& config, int64_t batch, int64_t micro,
                                  const ActivationPlan& plan) {
    const int64_t E = config.experts.count, k = config.experts.chosen, L = config.layers;
    if (E == 0) return 0;
    const int64_t F = config.expert_inner(), R = micro * config.seq_len, M = R * k;
    const int64_t sets = plan.set_count(L), acts = plan.own_act ? sets : 1;
    const int64_t of_rows = sets * (2 * F + config.channels) + acts * F;
    const int64_t of_router = sets * (R * 2 * E + M);
    return size_of(plan.dtype) * M * of_rows + size_of(wide(plan.dtype)) * of_router +
           4 * sets * (3 * M + E + 1) + 4 * L * batch * E +
           size_of(wide(plan.dtype)) * L * ceil_div(batch, micro) * 2 * micro;
  }
  /// Bytes of Workspace.
  static int64_t workspace_bytes(const GptConfig& config, int64_t micro,
                                 const ActivationPlan& plan) {
    const int64_t E = config.experts.count, C = config.channels, R = micro * config.seq_len;
    if (E == 0) return 0;
    const int64_t M = R * config.experts.chosen;
    const int64_t widened = size_of(plan.dtype) < 4 ? R * C + E * C : 0;
    return size_of(plan.dtype) * M * (2 * C + 3 * config.expert_inner()) +
           size_of(wide(plan.dtype)) * (M + R * E + widened);
  }

 private:
  int64_t rows_of(int64_t sequences) const {
    return sequences * config_.seq_len * config_.experts.chosen;
  }

  ExpertActs alloc_kept(Arena& arena, const ActivationPlan& plan) const {
    const int64_t B = micro_, T = config_.seq_len, M = rows_of(B), F = config_.expert_inner();
    const int64_t E = config_.experts.count, k = config_.experts.chosen;
    const auto alloc = [&](const char* name, Dtype dtype, Shape shape) {
      return arena.alloc(Mem::Activation, name, dtype, shape);
    };
    const bool own_act = plan.own_act || kept_.empty();
    return {.logits = alloc("router_logits", wide(plan.dtype), {B, T, E}),
            .scores = alloc("scores", wide(plan.dtype), {B, T, E}),
            .expert = alloc("expert", Dtype::I32, {B, T, k}),
            .weight = alloc("expert_weight", wide(plan.dtype), {B, T, k}),
            .rows{.offsets = arena.shared(Mem::Activation, "offsets", Dtype::I32, {E + 1}),
                  .row = alloc("row", Dtype::I32, {B, T, k}),
                  .from = alloc("from", Dtype::I32, {M})},
            .fc = alloc("expert_fc", plan.dtype, {M, 2 * F}),
            .act = own_act ? alloc("expert_act", plan.dtype, {M, F}) : kept_.front().act,
            .out = alloc("expert_out", plan.dtype, {M, config_.channels}),
            .load{},
            .losses{}};
  }

  ExpertScratch alloc_scratch(Arena& arena, const ActivationPlan& plan) const {
    const int64_t B = micro_, T = config_.seq_len, M = rows_of(B), F = config_.expert_inner();
    const int64_t E = config_.experts.count, C = config_.channels;
    const auto alloc = [&](const char* name, Dtype dtype, Shape shape) {
      return arena.alloc(Mem::Workspace, name, dtype, shape);
    };
    const bool narrow = size_of(plan.dtype) < 4;
    return {.inp = alloc("expert_inp", plan.dtype, {M, C}),
            .drows = alloc("drows", plan.dtype, {M, C}),
            .dfc = alloc("dexpert_fc", plan.dtype, {M, 2 * F}),
            .dact = alloc("dexpert_act", plan.dtype, {M, F}),
            .dweight = alloc("dexpert_weight", wide(plan.dtype), {B, T, config_.experts.chosen}),
            .dlogits = alloc("drouter_logits", wide(plan.dtype), {B, T, E}),
            .wide_tokens = narrow ? alloc("wide_tokens", Dtype::F32, {B, T, C}) : Tensor{},
            .wide_router = narrow ? alloc("wide_router", Dtype::F32, {E, C}) : Tensor{}};
  }

  GptConfig config_;
  int64_t capacity_, micro_;
  int64_t first_ = 0, count_ = 0;
  std::vector<ExpertActs> kept_;  ///< block l uses set l % sets
  ExpertScratch scratch_;
  Tensor load_;    ///< (L,B,E) I32
  Tensor losses_;  ///< (L micro-batches, 2 MBS)
};

}  // namespace ladder
