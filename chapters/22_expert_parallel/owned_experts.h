// Memory of a layer of experts that ep ranks share.
//
// A rank is an origin and an owner. As an origin it routes its own tokens: B sequences of a
// micro-batch. As an owner it has E / ep experts. It does for them what chapter 21 does, with the
// ep B sequences of its group; a token that does not come has no row. So the functions of chapter
// 21 serve both.
//
//   a block keeps                  numbers a token
//                                  origin, of B T tokens       owner, of ep B T tokens
//   router                         2 E, 2 k (weight, choice)   2 k (weight, choice), k (rows)
//   which rows travel              3 w, w = min(k, ep)         3
//   input of experts               -                           C
//
//   and for each of M rows of experts 3 F + C numbers and an index.
//
// Any token may choose any expert, so there is memory for the worst case: all tokens of the group
// come, and each takes as many of the E / ep experts as it may. An expert has at most c tokens of a
// sequence: T, or less with --capacity. So  M = ep B min(k T, c E / ep).  Forward and backward
// compute only with the rows that have come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "chapters/21_moe/experts.h"
#include "chapters/21_moe/moe.h"
#include "common/comm/comm.h"
#include "common/model/activations.h"
#include "common/model/layout.h"
#include "common/model/parts.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/narrow.h"

namespace ladder {

/// Sizes of a layer that ep ranks share.
struct OwnedShape {
  int64_t B, T, C, F;  ///< B: sequences of a micro-batch
  int64_t E, k;
  int64_t ep;
  int64_t most;  ///< c, tokens of a sequence that an expert may have
  Dtype dtype;   ///< of activations
  RouteRule rule;

  /// @param capacity tokens of a sequence that an expert takes; 0: all
  OwnedShape(const GptConfig& gpt, int64_t micro, int64_t ranks, int64_t capacity, Dtype of)
      : B(micro),
        T(gpt.seq_len),
        C(gpt.channels),
        F(gpt.expert_inner()),
        E(gpt.experts.count),
        k(gpt.experts.chosen),
        ep(ranks),
        most(capacity == 0 ? T : std::min(T, capacity)),
        dtype(of),
        rule(route_rule(gpt.experts)) {}

  int64_t own_experts() const { return div_exact(E, ep); }
  int64_t w() const { return std::min(k, ep); }          ///< owners of a token, at most
  int64_t sent_rows() const { return B * T * w(); }      ///< at most
  int64_t arrived_tokens() const { return ep * B * T; }  ///< at most
  int64_t M() const { return ep * B * std::min(k * T, own_experts() * most); }
  int64_t columns() const { return std::max(C, k); }  ///< of a row that travels, at most
  bool narrow() const { return size_of(dtype) < 4; }
};

/// Which rows travel, seen from one end. The kernels see the ranks at the other end as experts.
struct Travellers {
  ExpertRows rows;  ///< sorted by those ranks, then by token
  Tensor peer;      ///< (B,T,w) I32: those ranks of each token, ascending, then kElsewhere
};

/// What one block keeps for backward. Names as in chapter 21.
struct OwnedActs {
  ExpertActs tokens;   ///< as an origin: logits, scores, expert, weight, load, losses
  Travellers sent;     ///< as an origin; peer (B,T,w): the owners of each token
  Travellers arrived;  ///< as an owner; peer (ep B,T,1): the origin of each token that has come
  Tensor inp;          ///< (ep B,T,C), the tokens that have arrived
  ExpertActs experts;  ///< expert, weight (ep B,T,k); rows, fc, act, out of M rows
};

/// Shared by all blocks.
struct OwnedScratch {
  ExpertScratch tokens;   ///< dweight (B,T,k), dlogits, wide_tokens, wide_router
  ExpertScratch experts;  ///< inp, drows, dfc, dact of M rows; dweight (ep B,T,k)
  Tensor out;             ///< (ep B,T,C) F32, what an owner sends back: its sums, also in backward
  Tensor dout;            ///< (ep B,T,C), the gradient of the sums, which has arrived
};

/// Memory of the experts of all blocks, as ExpertLayers of chapter 21.
class OwnedExperts {
 public:
  /// @param batch sequences of a step on all ranks
  OwnedExperts(Arena& arena, const OwnedShape& shape, int64_t layers, int64_t batch,
               const ActivationPlan& plan, Comm& world)
      : s(shape), world_(world), layers_(layers) {
    if (s.E == 0) return;
    for (int64_t i = 0; i < plan.set_count(layers); ++i) kept_.push_back(alloc_kept(arena, plan));
    scratch_ = alloc_scratch(arena);
    load_ = arena.shared(Mem::Activation, "load", Dtype::I32, {layers, batch, s.E});
    losses_ = arena.shared(Mem::Activation, "router_losses", Dtype::F32,
                           {layers * div_exact(batch, s.B), 2 * s.B});
    begin(0, s.B);
  }
  static void add_bytes(MemoryBytes& bytes, const OwnedShape& s, int64_t layers, int64_t batch,
                        const ActivationPlan& plan) {
    if (s.E == 0) return;
    const int64_t a = size_of(s.dtype), R = s.B * s.T, A = s.arrived_tokens(), M = s.M();
    const int64_t sets = plan.set_count(layers), acts = plan.own_act ? sets : 1;
    const int64_t origin = 2 * R * s.E + 2 * R * s.k + 3 * s.sent_rows() + s.ep + 1;
    const int64_t owner = 3 * A * s.k + 3 * A + s.ep + 1 + s.own_experts() + 1 + M;
    bytes[Mem::Activation] += sets * (4 * (origin + owner) + a * (A * s.C + M * (2 * s.F + s.C))) +
                              acts * a * M * s.F + 4 * layers * batch * (s.E + 2);
    const int64_t widened = s.narrow() ? R * s.C + s.E * s.C : 0;
    bytes[Mem::Workspace] +=
        a * (M * (2 * s.C + 3 * s.F) + A * s.C) + 4 * (A * (s.C + s.k) + R * (s.k + s.E) + widened);
  }

  /// Calls from here on are for micro-batch k of a step, which has `count` sequences here.
  void begin(int64_t k, int64_t count) {
    micro_ = k * world_.size() + world_.rank();
    count_ = count;
  }
  /// What block l keeps of that micro-batch.
  OwnedActs acts(size_t l) const {
    OwnedActs a = kept_[l % kept_.size()];
    const auto block = static_cast<int64_t>(l);
    for (Tensor* of_tokens : {&a.tokens.logits, &a.tokens.scores, &a.tokens.expert,
                              &a.tokens.weight, &a.sent.peer, &a.sent.rows.row})
      *of_tokens = of_tokens->first(count_);
    a.tokens.load = load(block).slice(micro_ * s.B, count_);
    a.tokens.losses =
        losses(block).slice(micro_, 1).view({2 * s.B}).first(2 * count_).view({2, count_});
    return a;
  }
  OwnedScratch scratch() const {
    OwnedScratch some = scratch_;
    for (Tensor* of_tokens : {&some.tokens.dweight, &some.tokens.dlogits})
      *of_tokens = of_tokens->first(count_);
    if (some.tokens.wide_tokens) some.tokens.wide_tokens = some.tokens.wide_tokens.first(count_);
    return some;
  }

  /// The gradient of the router of block l. The gradient of its input `inp` is added to d.branch,
  /// which has that of the experts.
  void router_backward(const Ctx& ctx, const BlockTensors& g, const ActGrads& d, Tensor inp,
                       const BlockTensors& p, size_t l, const RouterLossScale& scale) const {
    ladder::router_backward(ctx, d.norm, g.experts.router, acts(l).tokens, scratch().tokens, inp,
                            p.experts.router, s.rule, scale, Into::Write);
    residual_backward_input(ctx, d.branch, d.norm);
  }

  /// After the last micro-batch: gets load and losses of the other ranks' sequences. All ranks call
  /// it. Returns this object.
  const OwnedExperts& gathered() const {
    for (int64_t l = 0; l < layers_ && s.E > 0; ++l)
      for (int64_t k = 0; k < losses(l).dim(0); k += world_.size()) {
        const auto of_all = [&](Tensor x, int64_t each) {
          world_.all_gather(x.slice(k * each, world_.size() * each),
                            x.slice((k + world_.rank()) * each, each));
        };
        of_all(load(l), s.B);
        of_all(losses(l), 1);
      }
    return *this;
  }
  /// What Balance reads, as from ExpertLayers. load (B,E) has all sequences of a step, losses
  /// (B / MBS, 2 MBS) all micro-batches of all ranks.
  Tensor load(int64_t l) const { return load_.slice(l, 1).view({load_.dim(1), s.E}); }
  Tensor losses(int64_t l) const {
    const int64_t micros = losses_.dim(0) / layers_;
    return losses_.slice(l * micros, micros);
  }
  /// Tokens of a sequence that an expert takes; 0: all.
  int64_t capacity() const { return s.most < s.T ? s.most : 0; }
  /// Tokens of a sequence that an expert may have: c.
  int64_t most() const { return s.most; }
  const RouteRule& rule() const { return s.rule; }

 private:
  OwnedActs alloc_kept(Arena& arena, const ActivationPlan& plan) const {
    const auto alloc = [&](const char* name, Dtype dtype, Shape shape) {
      return arena.alloc(Mem::Activation, name, dtype, shape);
    };
    const auto ids = [&](const char* name, Shape shape) {  // the host reads or writes them, too
      return arena.shared(Mem::Activation, name, Dtype::I32, shape);
    };
    const auto travellers = [&](int64_t sequences, int64_t peers) {
      const Shape shape{sequences, s.T, peers};
      return Travellers{.rows{.offsets = ids("travel.offsets", {s.ep + 1}),
                              .row = ids("travel.row", shape),
                              .from = ids("travel.from", {shape.size()})},
                        .peer = ids("travel.peer", shape)};
    };
    const int64_t all = s.ep * s.B, M = s.M();
    const bool own_act = plan.own_act || kept_.empty();
    OwnedActs a;
    a.tokens.logits = alloc("router_logits", Dtype::F32, {s.B, s.T, s.E});
    a.tokens.scores = alloc("scores", Dtype::F32, {s.B, s.T, s.E});
    a.tokens.expert = ids("expert", {s.B, s.T, s.k});
    a.tokens.weight = alloc("expert_weight", Dtype::F32, {s.B, s.T, s.k});
    a.sent = travellers(s.B, s.w());
    a.arrived = travellers(all, 1);
    a.inp = alloc("arrived", s.dtype, {all, s.T, s.C});
    a.experts.expert = ids("own_expert", {all, s.T, s.k});
    a.experts.weight = alloc("own_weight", Dtype::F32, {all, s.T, s.k});
    a.experts.rows = {.offsets = ids("offsets", {s.own_experts() + 1}),
                      .row = alloc("row", Dtype::I32, {all, s.T, s.k}),
                      .from = alloc("from", Dtype::I32, {M})};
    a.experts.fc = alloc("expert_fc", s.dtype, {M, 2 * s.F});
    a.experts.act = own_act ? alloc("expert_act", s.dtype, {M, s.F}) : kept_.front().experts.act;
    a.experts.out = alloc("expert_out", s.dtype, {M, s.C});
    return a;
  }

  OwnedScratch alloc_scratch(Arena& arena) const {
    const auto alloc = [&](const char* name, Dtype dtype, Shape shape) {
      return arena.alloc(Mem::Workspace, name, dtype, shape);
    };
    const int64_t all = s.ep * s.B, M = s.M();
    OwnedScratch some;
    some.tokens.dweight = alloc("dexpert_weight", Dtype::F32, {s.B, s.T, s.k});
    some.tokens.dlogits = alloc("drouter_logits", Dtype::F32, {s.B, s.T, s.E});
    if (s.narrow()) {
      some.tokens.wide_tokens = alloc("wide_tokens", Dtype::F32, {s.B, s.T, s.C});
      some.tokens.wide_router = alloc("wide_router", Dtype::F32, {s.E, s.C});
    }
    some.experts.inp = alloc("expert_inp", s.dtype, {M, s.C});
    some.experts.drows = alloc("drows", s.dtype, {M, s.C});
    some.experts.dfc = alloc("dexpert_fc", s.dtype, {M, 2 * s.F});
    some.experts.dact = alloc("dexpert_act", s.dtype, {M, s.F});
    some.experts.dweight = alloc("own_dweight", Dtype::F32, {all, s.T, s.k});
    some.out = alloc("owner_out", Dtype::F32, {all, s.T, s.C});
    some.dout = alloc("owner_dout", s.dtype, {all, s.T, s.C});
    return some;
  }

  const OwnedShape s;
  Comm& world_;
  int64_t layers_;
  int64_t micro_ = 0, count_ = 0;  ///< this rank's micro-batch among those of all; its sequences
  std::vector<OwnedActs> kept_;    ///< block l has set l % sets
  OwnedScratch scratch_;
  Tensor load_;    ///< (L,B,E) I32, B of all ranks
  Tensor losses_;  ///< (L B / MBS, 2 MBS), micro-batches of all ranks
};

}  // namespace ladder
