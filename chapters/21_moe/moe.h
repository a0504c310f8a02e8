// The layer of experts: router, dispatch, experts and combine, each with forward and backward.
#pragma once

#include <algorithm>
#include <cstdint>

#include "chapters/21_moe/experts.h"
#include "common/model/layout.h"
#include "kernels/cost.h"

namespace ladder {

constexpr int kOneLeaf = 1;  // for a sum that no layout splits

inline RouteRule route_rule(const Experts& experts) {
  return {.sigmoid = experts.router == Router::Sigmoid, .renormalize = experts.renormalize};
}

/// `x` in FP32 for the router. If activations are narrow it is a copy in `memory`, otherwise `x`
/// itself.
inline Tensor widened(const Ctx& ctx, Tensor x, Tensor memory) {
  if (!memory) return x;
  ctx.kernels->cast(ctx, memory, x);
  return memory;
}

/// Counts a product of the router's matrix (E,C), in any orientation, for the rows of x.
inline void count_router(const Ctx& ctx, Tensor x, Tensor router) {
  if (ctx.flops) *ctx.flops += cost::matmul(x.rows(), router.dim(0), router.dim(1)).flops;
}
/// Counts a product of all experts' w (E,N,K) with their rows. It reads offsets on the host. So it
/// is called after the product, when a device has written them.
inline void count_experts(const Ctx& ctx, const ExpertRows& rows, Tensor w) {
  if (!ctx.flops) return;
  const int64_t E = w.dim(0), M = rows.offsets.data<int32_t>()[E];
  *ctx.flops += cost::grouped_matmul(M, E, w.dim(1), w.dim(2)).flops;
}

/// `s` without the memory behind its last row: experts have fewer rows than there is memory for if
/// tokens are dropped. Then only rows that exist are computed. One row at least: a GPU starts no
/// empty grid. The host reads offsets, so call it when it has waited for expert_rows.
inline ExpertActs filled(ExpertActs s) {
  const int64_t M = s.rows.offsets.data<int32_t>()[s.rows.offsets.size() - 1];
  for (Tensor* x : {&s.rows.from, &s.fc, &s.act, &s.out, &s.inp, &s.drows, &s.dfc, &s.dact})
    *x = x->first(std::max<int64_t>(1, M));
  return s;
}
/// The same after expert_rows. Backward of a block needs no wait, because its forward has waited.
inline ExpertActs filled(const Ctx& ctx, const ExpertActs& s) {
  ctx.synchronize();
  return filled(s);
}

// ---- router: inp (B,T,C) ------------------------------------------------------------------------

/// Which experts each token takes, with which weights; load and losses of each sequence.
/// @param bias (E), added to the scores for the choice alone
inline void router_forward(const Ctx& ctx, const RouterActs& s, Tensor inp, Tensor router,
                           Tensor bias, const RouteRule& rule) {
  const Span span(ctx, "router_forward");
  const Tensor x = widened(ctx, inp, s.wide_tokens);
  const Tensor w = widened(ctx, router, s.wide_router);
  ctx.kernels->matmul_forward(ctx, s.logits, x, w, {}, kOneLeaf);
  count_router(ctx, x, w);
  ctx.kernels->route_forward(ctx, s.chosen.expert, s.chosen.weight, s.scores, s.load, s.losses,
                             s.logits, bias, rule);
}

/// The factors that the balance loss and the z-loss of a sequence have in the loss.
struct RouterLossScale {
  float balance, z;
};

/// dinp (B,T,C) and the gradient of the router (E,C), from s.chosen.dweight.
inline void router_backward(const Ctx& ctx, Tensor dinp, Tensor drouter, const RouterActs& s,
                            Tensor inp, Tensor router, const RouteRule& rule,
                            const RouterLossScale& scale, Into into) {
  const Span span(ctx, "router_backward");
  ctx.kernels->route_backward(ctx, s.dlogits, s.chosen.dweight, s.chosen.expert, s.scores, s.load,
                              s.logits, rule, scale.balance, scale.z);
  const Tensor x = widened(ctx, inp, s.wide_tokens);
  ctx.kernels->matmul_backward_weight(ctx, drouter, s.dlogits, x, into);
  const Tensor w = widened(ctx, router, s.wide_router);
  const Tensor wide_dinp = s.wide_tokens ? s.wide_tokens : dinp;
  ctx.kernels->matmul_backward_input(ctx, wide_dinp, s.dlogits, w, kOneLeaf);
  if (s.wide_tokens) ctx.kernels->cast(ctx, dinp, wide_dinp);
  for (int product = 0; product < 2; ++product) count_router(ctx, x, w);
}

// ---- dispatch: tokens go to the rows of their experts -------------------------------------------

/// Fills s.rows. Then s.inp (M,C) = inp (B,T,C) of the token in each row.
/// @param capacity tokens of a sequence that an expert takes; 0: all
inline void permute_forward(const Ctx& ctx, const ExpertActs& s, Tensor inp, int64_t capacity) {
  const Span span(ctx, "dispatch_forward");
  ctx.kernels->expert_rows(ctx, s.rows, s.chosen.expert, capacity);
  ctx.kernels->gather_rows(ctx, s.inp, inp, s.rows);
}
/// The same rows again, for backward: a block does not keep them.
inline void permute_recompute(const Ctx& ctx, const ExpertActs& s, Tensor inp) {
  const Span span(ctx, "dispatch_recompute");
  ctx.kernels->gather_rows(ctx, s.inp, inp, s.rows);
}
/// dinp (B,T,C) = the sum of s.drows over a token's experts. unpermute_backward() has multiplied
/// these rows by their factors.
inline void permute_backward(const Ctx& ctx, Tensor dinp, const ExpertActs& s) {
  const Span span(ctx, "dispatch_backward");
  ctx.kernels->unpermute_forward(ctx, dinp, s.drows, s.rows, s.chosen.expert, {});
}

// ---- experts: each on its own rows --------------------------------------------------------------

/// a.out = the experts' MLPs of a.inp: fc, SwiGLU, proj. Backward needs a.fc and a.act, too.
inline void experts_forward(const Ctx& ctx, const ExpertActs& a, const ExpertTensors& params) {
  const Span span(ctx, "experts_forward");
  const ExpertActs s = filled(ctx, a);
  ctx.kernels->grouped_matmul_forward(ctx, s.fc, s.inp, params.fc, s.rows, kOneLeaf);
  ctx.kernels->swiglu_forward(ctx, s.act, s.fc);
  ctx.kernels->grouped_matmul_forward(ctx, s.out, s.act, params.proj_w, s.rows, kLeaves);
  for (const Tensor& w : {params.fc, params.proj_w}) count_experts(ctx, s.rows, w);
}
/// Computes act from fc again, if it was not kept.
inline void experts_recompute(const Ctx& ctx, const ExpertActs& a) {
  const Span span(ctx, "experts_recompute");
  const ExpertActs s = filled(a);
  ctx.kernels->swiglu_forward(ctx, s.act, s.fc);
}
/// Gradients of the experts. a.drows is the gradient of their outputs before, and of their inputs
/// after.
/// @param inp (B,T,C), from which a.inp is gathered again
inline void experts_backward(const Ctx& ctx, const ExpertTensors& grads, const ExpertActs& a,
                             Tensor inp, const ExpertTensors& params, Into into) {
  const Span span(ctx, "experts_backward");
  const ExpertActs s = filled(a);
  const Kernels& k = *ctx.kernels;
  k.grouped_matmul_backward_input(ctx, s.dact, s.drows, params.proj_w, s.rows, kOneLeaf);
  k.grouped_matmul_backward_weight(ctx, grads.proj_w, s.drows, s.act, s.rows, into);
  k.swiglu_backward(ctx, s.dfc, s.dact, s.fc);
  permute_recompute(ctx, s, inp);
  k.grouped_matmul_backward_weight(ctx, grads.fc, s.dfc, s.inp, s.rows, into);
  k.grouped_matmul_backward_input(ctx, s.drows, s.dfc, params.fc, s.rows, kLeaves);
  for (const Tensor& w : {params.fc, params.fc, params.proj_w, params.proj_w})
    count_experts(ctx, s.rows, w);
}

// ---- combine: out (B,T,C), the weighted sum of the outputs of a token's experts -----------------

inline void unpermute_forward(const Ctx& ctx, Tensor out, const ExpertActs& s) {
  const Span span(ctx, "combine_forward");
  ctx.kernels->unpermute_forward(ctx, out, s.out, s.rows, s.chosen.expert, s.chosen.weight);
}
/// s.drows and s.chosen.dweight from dout.
inline void unpermute_backward(const Ctx& ctx, const ExpertActs& s, Tensor dout) {
  const Span span(ctx, "combine_backward");
  ctx.kernels->unpermute_backward(ctx, s.drows, s.chosen.dweight, dout, s.out, s.rows,
                                  s.chosen.weight);
}

}  // namespace ladder
