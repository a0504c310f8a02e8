#include "common/model/parts.h"

#include "kernels/check.h"
#include "kernels/cost.h"
#include "kernels/transfer.h"

namespace ladder {
namespace {

/// The leaves of a sum that no layout splits: one.
constexpr int kWhole = 1;

/// Counts one product with a linear layer w (N,K), in any orientation, for the rows of x.
void count(const Ctx& ctx, Tensor x, Tensor w) {
  if (ctx.flops) *ctx.flops += cost::matmul(x.rows(), w.dim(0), w.dim(1)).flops;
}
/// Counts the products of attention, in one direction.
void count(const Ctx& ctx, Cost (*cost)(int64_t, int64_t, int64_t, int64_t), const AttnSaved& s) {
  const int64_t NH = s.lse.dim(1);
  if (ctx.flops) *ctx.flops += cost(s.att.dim(0), s.att.dim(1), NH, s.att.dim(2) / NH).flops;
}

bool is_gated(const MlpSaved& saved) { return saved.fc.dim(2) == 2 * saved.act.dim(2); }

}  // namespace

void embed_forward(const Ctx& ctx, Tensor out, Tensor tokens, const EmbedTensors& params) {
  const Span span(ctx, "embed_forward");
  ctx.kernels->embed_forward(ctx, out, tokens, params.wte, params.wpe);
}

void embed_backward_weight(const Ctx& ctx, const EmbedTensors& grads, Tensor dout, Tensor tokens,
                           Into into) {
  const Span span(ctx, "embed_backward_weight");
  if (grads.tied) {
    // The head has written its own sum into wte. Nothing has written wpe: it begins as -0.
    CHECK(into == Into::Write, "the sums of a tied head are complete only after the last call");
    into = Into::Add;
    if (grads.wpe) zero(ctx, grads.wpe);
    if (grads.wpe) ctx.kernels->scale(ctx, grads.wpe, -1.0f);
  }
  ctx.kernels->embed_backward(ctx, grads.wte, grads.wpe, dout, tokens, into);
}

void norm_forward(const Ctx& ctx, Tensor out, const NormSaved& saved, Tensor inp,
                  const Affine& params) {
  const Span span(ctx, "norm_forward");
  ctx.kernels->norm_forward(ctx, out, saved.mean, saved.rstd, inp, params.w, params.b);
}

void norm_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp,
                         const NormSaved& saved, const Affine& params) {
  const Span span(ctx, "norm_backward_input");
  ctx.kernels->norm_backward_input(ctx, dinp, dout, inp, params.w, saved.mean, saved.rstd);
}

void norm_backward_weight(const Ctx& ctx, const Affine& grads, Tensor dout, Tensor inp,
                          const NormSaved& saved, Into into) {
  const Span span(ctx, "norm_backward_weight");
  ctx.kernels->norm_backward_weight(ctx, grads.w, grads.b, dout, inp, saved.mean, saved.rstd, into);
}

// Tensor parallelism splits attn by heads. So the input gradient of qkv and the product of proj are
// sums over ranks, and have leaves. The same holds for the channels of mlp.

void qkv_forward(const Ctx& ctx, const AttnSaved& saved, Tensor inp, const AttnTensors& params) {
  count(ctx, inp, params.qkv.w);
  ctx.kernels->matmul_forward(ctx, saved.qkv, inp, params.qkv.w, params.qkv.b, kWhole);
  turn(ctx, saved.qkv, saved, /*back=*/false);
}

void qkv_backward_input(const Ctx& ctx, Tensor dinp, const AttnGrads& d, const AttnSaved& saved,
                        const AttnTensors& params) {
  turn(ctx, d.dqkv, saved, /*back=*/true);
  count(ctx, d.dqkv, params.qkv.w);
  ctx.kernels->matmul_backward_input(ctx, dinp, d.dqkv, params.qkv.w, ctx.leaves);
}

void qkv_backward_weight(const Ctx& ctx, const AttnTensors& grads, const AttnGrads& d, Tensor inp,
                         Into into) {
  count(ctx, inp, grads.qkv.w);
  ctx.kernels->matmul_backward_weight(ctx, grads.qkv.w, d.dqkv, inp, into);
  bias_backward_weight(ctx, grads.qkv.b, d.dqkv, into);
}

void turn(const Ctx& ctx, Tensor qkv, const AttnSaved& saved, bool back) {
  if (!saved.angles) return;
  const Span span(ctx, "rope");
  ctx.kernels->rope(ctx, qkv, saved.angles, saved.lse.dim(1), back);
}

void attend_forward(const Ctx& ctx, const AttnSaved& saved) {
  const Span span(ctx, "attention_forward");
  count(ctx, cost::attention_forward, saved);
  ctx.kernels->attention_forward(ctx, saved.att, saved.lse, saved.qkv);
}

void attend_backward_input(const Ctx& ctx, const AttnGrads& d, const AttnSaved& saved) {
  const Span span(ctx, "attention_backward");
  count(ctx, cost::attention_backward, saved);
  ctx.kernels->attention_backward(ctx, d.dqkv, d.datt, saved.qkv, saved.att, saved.lse);
}

void proj_forward(const Ctx& ctx, Tensor product, const AttnSaved& saved,
                  const AttnTensors& params) {
  count(ctx, saved.att, params.proj_w);
  ctx.kernels->matmul_forward(ctx, product, saved.att, params.proj_w, {}, ctx.leaves);
}

void proj_backward_input(const Ctx& ctx, const AttnGrads& d, Tensor dproduct,
                         const AttnTensors& params) {
  count(ctx, dproduct, params.proj_w);
  ctx.kernels->matmul_backward_input(ctx, d.datt, dproduct, params.proj_w, kWhole);
}

void proj_backward_weight(const Ctx& ctx, const AttnTensors& grads, Tensor dproduct,
                          const AttnSaved& saved, Into into) {
  count(ctx, dproduct, grads.proj_w);
  ctx.kernels->matmul_backward_weight(ctx, grads.proj_w, dproduct, saved.att, into);
}

void attn_forward(const Ctx& ctx, Tensor product, const AttnSaved& saved, Tensor inp,
                  const AttnTensors& params) {
  const Span span(ctx, "attn_forward");
  qkv_forward(ctx, saved, inp, params);
  attend_forward(ctx, saved);
  proj_forward(ctx, product, saved, params);
}

void attn_recompute(const Ctx& ctx, const AttnSaved& saved) {
  const Span span(ctx, "attn_recompute");
  attend_forward(ctx, saved);
}

void attn_backward_input(const Ctx& ctx, Tensor dinp, const AttnGrads& d, Tensor dproduct,
                         const AttnSaved& saved, const AttnTensors& params) {
  const Span span(ctx, "attn_backward_input");
  proj_backward_input(ctx, d, dproduct, params);
  attend_backward_input(ctx, d, saved);
  qkv_backward_input(ctx, dinp, d, saved, params);
}

void attn_backward_weight(const Ctx& ctx, const AttnTensors& grads, const AttnGrads& d,
                          Tensor dproduct, Tensor inp, const AttnSaved& saved, Into into) {
  const Span span(ctx, "attn_backward_weight");
  proj_backward_weight(ctx, grads, dproduct, saved, into);
  qkv_backward_weight(ctx, grads, d, inp, into);
}

void mlp_forward(const Ctx& ctx, Tensor product, const MlpSaved& saved, Tensor inp,
                 const MlpTensors& params) {
  const Span span(ctx, "mlp_forward");
  count(ctx, inp, params.fc.w);
  count(ctx, inp, params.proj_w);
  const Kernels& k = *ctx.kernels;
  k.matmul_forward(ctx, saved.fc, inp, params.fc.w, params.fc.b, kWhole);
  act_forward(ctx, saved);
  k.matmul_forward(ctx, product, saved.act, params.proj_w, {}, ctx.leaves);
}

void mlp_recompute(const Ctx& ctx, const MlpSaved& saved) {
  if (!saved.act) return;
  const Span span(ctx, "mlp_recompute");
  act_forward(ctx, saved);
}

void mlp_backward_input(const Ctx& ctx, Tensor dinp, const MlpGrads& d, Tensor dproduct,
                        const MlpSaved& saved, const MlpTensors& params) {
  const Span span(ctx, "mlp_backward_input");
  count(ctx, dproduct, params.proj_w);
  count(ctx, d.dfc, params.fc.w);
  const Kernels& k = *ctx.kernels;
  k.matmul_backward_input(ctx, d.dact, dproduct, params.proj_w, kWhole);
  act_backward(ctx, d, saved);
  k.matmul_backward_input(ctx, dinp, d.dfc, params.fc.w, ctx.leaves);
}

void mlp_backward_weight(const Ctx& ctx, const MlpTensors& grads, const MlpGrads& d,
                         Tensor dproduct, Tensor inp, const MlpSaved& saved, Into into) {
  const Span span(ctx, "mlp_backward_weight");
  count(ctx, dproduct, grads.proj_w);
  count(ctx, inp, grads.fc.w);
  const Kernels& k = *ctx.kernels;
  k.matmul_backward_weight(ctx, grads.proj_w, dproduct, saved.act, into);
  k.matmul_backward_weight(ctx, grads.fc.w, d.dfc, inp, into);
  bias_backward_weight(ctx, grads.fc.b, d.dfc, into);
}

void act_forward(const Ctx& ctx, const MlpSaved& saved) {
  const bool gated = is_gated(saved);
  const Span span(ctx, gated ? "swiglu_forward" : "gelu_forward");
  (gated ? ctx.kernels->swiglu_forward : ctx.kernels->gelu_forward)(ctx, saved.act, saved.fc);
}

void act_backward(const Ctx& ctx, const MlpGrads& d, const MlpSaved& saved) {
  const bool gated = is_gated(saved);
  const Span span(ctx, gated ? "swiglu_backward" : "gelu_backward");
  (gated ? ctx.kernels->swiglu_backward : ctx.kernels->gelu_backward)(ctx, d.dfc, d.dact, saved.fc);
}

void residual_forward(const Ctx& ctx, Tensor out, Tensor residual, Tensor product, Tensor bias) {
  const Span span(ctx, "residual_forward");
  ctx.kernels->residual_forward(ctx, out, residual, product, bias);
}

void residual_backward_input(const Ctx& ctx, Tensor dresidual, Tensor dbranch) {
  residual_backward_input(ctx, dresidual, dresidual, dbranch);
}

void residual_backward_input(const Ctx& ctx, Tensor dresidual, Tensor dout, Tensor dbranch) {
  const Span span(ctx, "residual_backward_input");
  ctx.kernels->add(ctx, dresidual, dout, dbranch);
}

void residual_backward_weight(const Ctx& ctx, Tensor dbias, Tensor dout, Into into) {
  const Span span(ctx, "residual_backward_weight");
  bias_backward_weight(ctx, dbias, dout, into);
}

void bias_backward_weight(const Ctx& ctx, Tensor dbias, Tensor dout, Into into) {
  if (dbias) ctx.kernels->bias_backward(ctx, dbias, dout, into);
}

void head_forward(const Ctx& ctx, Tensor logits, Tensor inp, Tensor w) {
  const Span span(ctx, "head_forward");
  count(ctx, inp, w);
  ctx.kernels->matmul_forward(ctx, logits, inp, w, {}, kWhole);
}

void head_backward_input(const Ctx& ctx, Tensor dinp, Tensor dlogits, Tensor w) {
  const Span span(ctx, "head_backward_input");
  count(ctx, dinp, w);
  ctx.kernels->matmul_backward_input(ctx, dinp, dlogits, w, ctx.leaves);
}

void head_backward_weight(const Ctx& ctx, Tensor dw, Tensor dlogits, Tensor inp, Into into) {
  const Span span(ctx, "head_backward_weight");
  count(ctx, inp, dw);
  ctx.kernels->matmul_backward_weight(ctx, dw, dlogits, inp, into);
}

void head_loss_and_gradient(const Ctx& ctx, Tensor losses, Tensor logits, Tensor targets,
                            int64_t vocab, float scale) {
  const Span span(ctx, "head_loss_and_gradient");
  ctx.kernels->cross_entropy(ctx, losses, logits, logits, targets, vocab, scale);
}

void head_loss(const Ctx& ctx, Tensor losses, Tensor logits, Tensor targets, int64_t vocab) {
  const Span span(ctx, "head_loss");
  ctx.kernels->cross_entropy(ctx, losses, {}, logits, targets, vocab, 1.0f);
}

void head_max(const Ctx& ctx, const SoftmaxSums& all, Tensor logits, int64_t vocab) {
  const Span span(ctx, "head_max");
  ctx.kernels->softmax_max(ctx, all.max, logits, vocab);
}

void head_sum(const Ctx& ctx, const SoftmaxSums& all, Tensor logits, Tensor targets,
              int64_t vocab) {
  const Span span(ctx, "head_sum");
  ctx.kernels->softmax_sum(ctx, all.sum, all.target, logits, all.max, targets, vocab);
}

void head_loss_and_gradient(const Ctx& ctx, Tensor losses, Tensor logits, const SoftmaxSums& all,
                            Tensor targets, int64_t vocab, float scale) {
  if (!all.max) return head_loss_and_gradient(ctx, losses, logits, targets, vocab, scale);
  const Span span(ctx, "head_loss_and_gradient");
  ctx.kernels->softmax_loss(ctx, losses, logits, logits, all.max, all.sum, all.target, targets,
                            vocab, scale);
}

void head_loss(const Ctx& ctx, Tensor losses, Tensor logits, const SoftmaxSums& all, Tensor targets,
               int64_t vocab) {
  if (!all.max) return head_loss(ctx, losses, logits, targets, vocab);
  const Span span(ctx, "head_loss");
  ctx.kernels->softmax_loss(ctx, losses, {}, logits, all.max, all.sum, all.target, targets, vocab,
                            1.0f);
}

}  // namespace ladder
