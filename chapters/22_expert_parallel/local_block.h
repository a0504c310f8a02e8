// What a rank does in a block without other ranks. Attention and the MLP are as in chapters 09 and
// 21, each in one call. An owner does for its experts what chapter 21 does, with the tokens that
// have come.
#pragma once

#include <algorithm>
#include <cstdint>

#include "chapters/21_moe/balance.h"
#include "chapters/21_moe/moe.h"
#include "chapters/22_expert_parallel/dispatch.h"
#include "chapters/22_expert_parallel/owned_experts.h"
#include "common/model/activations.h"
#include "common/model/parts.h"

namespace ladder {

/// The branch of attention of block l: norm, attention, residual. Writes a.blocks[l].mid.
inline void attention_branch_forward(const Ctx& ctx, const Activations& a, const BlockTensors& p,
                                     int64_t l) {
  const BlockActs& s = a.blocks[static_cast<size_t>(l)];
  norm_forward(ctx, s.norm1, s.stat1, a.stream(l), p.norm1);
  attn_forward(ctx, a.product, s.attn, s.norm1, p.attn);
  residual_forward(ctx, s.mid, a.stream(l), a.product, p.residual1_b);
}
/// The gradients of its parameters. d.stream is the gradient of mid before, and of the block's
/// input after.
inline void attention_branch_backward(const Ctx& ctx, const BlockTensors& g, const ActGrads& d,
                                      const Activations& a, const BlockTensors& p, int64_t l) {
  const BlockActs& s = a.blocks[static_cast<size_t>(l)];
  residual_backward_weight(ctx, g.residual1_b, d.stream, Into::Write);
  attn_backward_input(ctx, d.branch, d.attn, d.stream, s.attn, p.attn);
  attn_backward_weight(ctx, g.attn, d.attn, d.stream, s.norm1, s.attn, Into::Write);
  norm_backward_input(ctx, d.norm, d.branch, a.stream(l), s.stat1, p.norm1);
  norm_backward_weight(ctx, g.norm1, d.branch, a.stream(l), s.stat1, Into::Write);
  residual_backward_input(ctx, d.stream, d.norm);
}

/// The MLP that all tokens take: the shared experts of a block with experts, which may have none,
/// or the MLP of a block without. Adds to the stream behind the other experts, if there are any.
inline void shared_mlp_forward(const Ctx& ctx, const Activations& a, const BlockTensors& p,
                               const BlockActs& s) {
  if (!p.mlp.proj_w) return;
  const Tensor mid = p.experts.router ? s.out : s.mid;
  mlp_forward(ctx, a.product, s.mlp, s.norm2, p.mlp);
  residual_forward(ctx, s.out, mid, a.product, p.residual2_b);
}
/// The gradients of its parameters, and d.branch, the gradient of its input. Beside experts it is
/// added to theirs, which d.branch has already.
inline void shared_mlp_backward(const Ctx& ctx, const BlockTensors& g, const ActGrads& d,
                                const BlockTensors& p, const BlockActs& s) {
  residual_backward_weight(ctx, g.residual2_b, d.stream, Into::Write);
  if (!p.mlp.proj_w) return;
  const bool beside = static_cast<bool>(p.experts.router);
  mlp_backward_input(ctx, beside ? d.norm : d.branch, d.mlp, d.stream, s.mlp, p.mlp);
  mlp_backward_weight(ctx, g.mlp, d.mlp, d.stream, s.norm2, s.mlp, Into::Write);
  if (beside) residual_backward_input(ctx, d.branch, d.norm);
}

/// `a` with the M rows that own experts have got, without the memory for more: products then cost
/// what has come, and not the worst case. One row at least: a GPU starts no empty grid.
inline OwnedActs filled(const Ctx& ctx, OwnedActs a) {
  ctx.synchronize();  // the host reads offsets
  const int64_t M = a.experts.rows.offsets.data<int32_t>()[a.experts.rows.offsets.size() - 1];
  for (Tensor* x : {&a.experts.rows.from, &a.experts.fc, &a.experts.act, &a.experts.out})
    *x = x->first(std::max<int64_t>(1, M));
  return a;
}
/// The scratch of these rows.
inline ExpertScratch filled(ExpertScratch some, const OwnedActs& a) {
  for (Tensor* x : {&some.inp, &some.drows, &some.dfc, &some.dact})
    *x = x->first(a.experts.rows.from.size());
  return some;
}

/// scratch.out (ep B,T,C) = the outputs of own experts for a.inp, added up for each token.
/// @param most tokens of a sequence that an expert may have
inline void own_experts_forward(const Ctx& ctx, const OwnedActs& a, const OwnedScratch& scratch,
                                const ExpertTensors& p, int64_t most) {
  dispatch_forward(ctx, a.experts, scratch.experts, a.inp, most);
  const OwnedActs s = filled(ctx, a);
  experts_forward(ctx, s.experts, filled(scratch.experts, s), p);
  combine_forward(ctx, scratch.out, s.experts);
}
/// Computes act of own experts again from fc, if it was not kept.
inline void own_experts_recompute(const Ctx& ctx, const OwnedActs& a) {
  experts_recompute(ctx, filled(ctx, a).experts);
}
/// From scratch.dout: the gradients `g` of own experts; scratch.experts.dweight, those of the
/// weights w_e of their rows; and scratch.out, which is now the gradient of a.inp.
inline void own_experts_backward(const Ctx& ctx, const ExpertTensors& g, const OwnedActs& a,
                                 const OwnedScratch& scratch, const ExpertTensors& p) {
  const OwnedActs s = filled(ctx, a);
  const ExpertScratch own = filled(scratch.experts, s);
  combine_backward(ctx, own, scratch.dout, s.experts);
  experts_backward(ctx, g, s.experts, own, s.inp, p, Into::Write);
  dispatch_backward(ctx, scratch.out, s.experts, own);
}

/// Adds what experts take: the bytes of OwnedExperts, Dispatch and Balance.
inline void add_expert_bytes(MemoryBytes& bytes, const OwnedShape& shape, const GptConfig& gpt,
                             int64_t batch, const ActivationPlan& plan) {
  OwnedExperts::add_bytes(bytes, shape, gpt.layers, batch, plan);
  Dispatch::add_bytes(bytes, shape);
  bytes[Mem::Optim] += Balance::bytes(gpt);
}

}  // namespace ladder
