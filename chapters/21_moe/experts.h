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
//   (one MLP)              3 F                         3 F
//   experts                2 E, 4 k (weight, indices)  E + k (gradients of logits and weights)
//                          k (3 F + C)                 k (3 F + 2 C)
//
// A block also keeps 4 (E + 1) bytes of offsets. With 16-bit activations the numbers of the router
// are still FP32. Its input (C numbers per token) and its matrix (E C) are then copied to FP32.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/activations.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder {

/// Which experts tokens take, and with which weights.
struct Choices {
  Tensor expert;   ///< (B,T,k) I32, ascending
  Tensor weight;   ///< (B,T,k) F32
  Tensor dweight;  ///< (B,T,k) F32, shared by all blocks
};

/// What the router of one block keeps. All routers share the members after the empty line.
struct RouterActs {
  Choices chosen;
  Tensor logits, scores;  ///< (B,T,E) F32
  Tensor load;            ///< (B,E) I32, tokens that chose each expert
  Tensor losses;          ///< (2,B), balance loss and z-loss of each sequence

  Tensor dlogits;      ///< (B,T,E) F32
  Tensor wide_tokens;  ///< (B,T,C) F32 if activations are narrow; else null
  Tensor wide_router;  ///< (E,C) F32, on the same condition
};

/// What the experts of one block keep. All blocks share the members after the empty line: inputs of
/// experts, and gradients.
struct ExpertActs {
  Choices chosen;
  ExpertRows rows;  ///< which pair of a token and an expert lies in which of M rows
  Tensor fc, act;   ///< (M,2F), (M,F)
  Tensor out;       ///< (M,C), outputs of experts, before their weights

  Tensor inp;        ///< (M,C)
  Tensor drows;      ///< (M,C), of the outputs of experts, then of their inputs
  Tensor dfc, dact;  ///< (M,2F), (M,F)
};

/// Sizes of the experts of a block, and of what comes to them.
struct ExpertSizes {
  int64_t L, B, T, C, F;  ///< L: blocks; B: sequences whose tokens come
  int64_t E, k;
  int64_t M;  ///< rows, at most

  ExpertSizes(const GptConfig& config, int64_t sequences)
      : L(config.layers),
        B(sequences),
        T(config.seq_len),
        C(config.channels),
        F(config.expert_inner()),
        E(config.experts.count),
        k(config.experts.chosen),
        M(B * T * k) {}
};

/// Memory of the routers of all blocks.
class Routers {
 public:
  /// @param batch, micro sequences of a step and of a micro-batch
  Routers(Arena& arena, const GptConfig& config, int64_t batch, int64_t micro,
          const ActivationPlan& plan, int64_t capacity)
      : s(config, micro), capacity_(capacity) {
    if (s.E == 0) return;
    for (int64_t i = 0; i < plan.set_count(s.L); ++i) kept_.push_back(alloc(arena, plan));
    // Load and losses of all micro-batches of a step, since the host reads them after the step.
    load_ = arena.shared(Mem::Activation, "load", Dtype::I32, {s.L, batch, s.E});
    losses_ = arena.shared(Mem::Activation, "router_losses", wide(plan.dtype),
                           {s.L, ceil_div(batch, s.B), 2 * s.B});
    begin(0, s.B);
  }

  /// The following calls are for micro-batch k of a step. It has `count` sequences.
  void begin(int64_t k, int64_t count) {
    first_ = k;
    count_ = count;
  }
  /// Of block l, for that micro-batch.
  RouterActs acts(size_t l) const {
    RouterActs a = kept_[l % kept_.size()];
    for (Tensor* x : {&a.chosen.expert, &a.chosen.weight, &a.chosen.dweight, &a.logits, &a.scores,
                      &a.dlogits, &a.wide_tokens})
      if (*x) *x = x->first(count_);
    const auto block = static_cast<int64_t>(l);
    a.load = load(block).slice(first_ * s.B, count_);
    a.losses = losses(block).slice(first_, 1).view({2 * s.B}).first(2 * count_).view({2, count_});
    return a;
  }
  int64_t capacity() const { return capacity_; }

  /// The load (B,E) of block l in a step, for the host.
  Tensor load(int64_t l) const { return load_.slice(l, 1).view({load_.dim(1), load_.dim(2)}); }
  /// The losses (micro-batches, 2 MBS) of block l in a step, for the host.
  Tensor losses(int64_t l) const {
    return losses_.slice(l, 1).view({losses_.dim(1), losses_.dim(2)});
  }

  /// Bytes of Activation: those of the table above, and of loads and losses.
  static int64_t activation_bytes(const GptConfig& config, int64_t batch, int64_t micro,
                                  const ActivationPlan& plan) {
    const ExpertSizes s(config, micro);
    if (s.E == 0) return 0;
    const int64_t sets = plan.set_count(s.L), losses = s.L * ceil_div(batch, micro) * 2 * micro;
    return size_of(wide(plan.dtype)) * (sets * (2 * s.B * s.T * s.E + s.M) + losses) +
           4 * (sets * s.M + s.L * batch * s.E);
  }
  /// Bytes of Workspace.
  static int64_t workspace_bytes(const GptConfig& config, int64_t micro,
                                 const ActivationPlan& plan) {
    const ExpertSizes s(config, micro);
    if (s.E == 0) return 0;
    const int64_t tokens = s.B * s.T, widened = is_narrow(plan.dtype) ? (tokens + s.E) * s.C : 0;
    return size_of(wide(plan.dtype)) * (s.M + tokens * s.E + widened);
  }

 private:
  RouterActs alloc(Arena& arena, const ActivationPlan& plan) const {
    const Dtype real = wide(plan.dtype);
    const Shape choices{s.B, s.T, s.k}, scores{s.B, s.T, s.E};
    RouterActs a = kept_.empty() ? RouterActs{} : kept_.front();
    a.chosen.expert = arena.alloc(Mem::Activation, "expert", Dtype::I32, choices);
    a.chosen.weight = arena.alloc(Mem::Activation, "expert_weight", real, choices);
    a.logits = arena.alloc(Mem::Activation, "router_logits", real, scores);
    a.scores = arena.alloc(Mem::Activation, "scores", real, scores);
    if (!kept_.empty()) return a;
    a.chosen.dweight = arena.alloc(Mem::Workspace, "dexpert_weight", real, choices);
    a.dlogits = arena.alloc(Mem::Workspace, "drouter_logits", real, scores);
    if (!is_narrow(plan.dtype)) return a;
    a.wide_tokens = arena.alloc(Mem::Workspace, "wide_tokens", real, {s.B, s.T, s.C});
    a.wide_router = arena.alloc(Mem::Workspace, "wide_router", real, {s.E, s.C});
    return a;
  }

  const ExpertSizes s;
  int64_t capacity_;
  int64_t first_ = 0, count_ = 0;
  std::vector<RouterActs> kept_;  ///< block l has set l % sets
  Tensor load_;                   ///< (L,B,E) I32
  Tensor losses_;                 ///< (L, micro-batches, 2 MBS)
};

/// Memory of the experts of all blocks.
class ExpertLayers {
 public:
  ExpertLayers(Arena& arena, const ExpertSizes& s, const ActivationPlan& plan) {
    if (s.E == 0) return;
    for (int64_t i = 0; i < plan.set_count(s.L); ++i) kept_.push_back(alloc(arena, s, plan));
  }

  /// Of block l, for tokens with these choices; without choices for experts_recompute(), which
  /// reads rows alone.
  ExpertActs acts(size_t l, const Choices& chosen = {}) const {
    ExpertActs a = kept_[l % kept_.size()];
    a.chosen = chosen;
    if (chosen.expert) a.rows.row = a.rows.row.first(chosen.expert.dim(0));
    return a;
  }

  /// Bytes of Activation, as the table says.
  static int64_t activation_bytes(const ExpertSizes& s, const ActivationPlan& plan) {
    if (s.E == 0) return 0;
    const int64_t sets = plan.set_count(s.L), acts = plan.own_act ? sets : 1;
    return size_of(plan.dtype) * s.M * (sets * (2 * s.F + s.C) + acts * s.F) +
           4 * sets * (s.B * s.T * s.k + s.M + s.E + 1);
  }
  /// The same of Workspace.
  static int64_t workspace_bytes(const ExpertSizes& s, const ActivationPlan& plan) {
    return s.E == 0 ? 0 : size_of(plan.dtype) * s.M * (2 * s.C + 3 * s.F);
  }

 private:
  ExpertActs alloc(Arena& arena, const ExpertSizes& s, const ActivationPlan& plan) const {
    const auto kept = [&](const char* name, Dtype dtype, Shape shape) {
      return arena.alloc(Mem::Activation, name, dtype, shape);
    };
    const auto shared = [&](const char* name, int64_t columns) {
      return arena.alloc(Mem::Workspace, name, plan.dtype, {s.M, columns});
    };
    ExpertActs a = kept_.empty() ? ExpertActs{} : kept_.front();
    a.rows = {.offsets = arena.shared(Mem::Activation, "offsets", Dtype::I32, {s.E + 1}),
              .row = kept("row", Dtype::I32, {s.B, s.T, s.k}),
              .from = kept("from", Dtype::I32, {s.M})};
    a.fc = kept("expert_fc", plan.dtype, {s.M, 2 * s.F});
    if (plan.own_act || kept_.empty()) a.act = kept("expert_act", plan.dtype, {s.M, s.F});
    a.out = kept("expert_out", plan.dtype, {s.M, s.C});
    if (!kept_.empty()) return a;
    a.inp = shared("expert_inp", s.C);
    a.drows = shared("drows", s.C);
    a.dfc = shared("dexpert_fc", 2 * s.F);
    a.dact = shared("dexpert_act", s.F);
    return a;
  }

  std::vector<ExpertActs> kept_;  ///< block l has set l % sets
};

}  // namespace ladder
