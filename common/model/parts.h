// The parts of a GPT block. A chapter's main.cpp calls them and puts its lesson between the calls.
//
//   x --> norm --> attn --> residual --> norm --> mlp --> residual --> next x
//    \_____________________/    \____________________/
//
// Each part has _forward, _backward_input (the gradient of what it read) and _backward_weight (the
// gradient of its parameters). Sizes come from the tensors, so the same functions serve a rank that
// has only some heads or some channels of the MLP. attn and mlp return their product without its
// bias, because a sum over ranks may still be missing. residual adds the bias and the stream.
//
// attn consists of three parts, which a chapter may call one by one. qkv makes queries, keys and
// values of every token, attend mixes tokens, proj makes the product. Where ranks split a sequence,
// only attend is replaced: queries stay, keys and values travel, and pieces of attention
// (kernels/kernels.h) are merged.
//
// Letters: B sequences, T tokens, C channels, NH query heads in NKV groups that share a key and a
// value head, HS channels of a head, Vp padded vocabulary.
#pragma once

#include "common/model/layout.h"
#include "kernels/kernels.h"

namespace ladder {

// Tensors say what a block is made of: a null tensor means that the block lacks this.

/// Saved by norm_forward. (B,T) each; RMSNorm has no mean.
struct NormSaved {
  Tensor mean, rstd;
};
/// Saved by attn_forward.
struct AttnSaved {
  Tensor qkv;  ///< (B,T,(NH+2*NKV)*HS); 3C if every head has its own key
  Tensor att;  ///< (B,T,C), the heads' outputs
  Tensor lse;  ///< (B,NH,T), log of each row's sum of exponentials
  /// (T,HS), by which queries and keys are turned (common/model/rope.h). It is read, not saved.
  /// Null: positions are learned.
  Tensor angles;
};
/// Saved by mlp_forward.
struct MlpSaved {
  Tensor fc;   ///< (B,T,F) before GELU, or (B,T,2F) before SwiGLU
  Tensor act;  ///< (B,T,F), the output of the activation function
};
/// Written by attn_backward_input, read by attn_backward_weight.
struct AttnGrads {
  Tensor dqkv;  ///< as qkv; backward_input undoes in it the turn by saved.angles
  Tensor datt;  ///< (B,T,C)
};
/// Written by mlp_backward_input, read by mlp_backward_weight.
struct MlpGrads {
  Tensor dfc;   ///< as fc
  Tensor dact;  ///< (B,T,F), which only backward_input reads; with GELU it is dfc

  MlpGrads first(int64_t n) const {
    return {.dfc = dfc ? dfc.first(n) : Tensor{}, .dact = dact ? dact.first(n) : Tensor{}};
  }
};

/// out (B,T,C) = token embedding of tokens (B,T) I32, plus position embedding if positions are
/// learned.
void embed_forward(const Ctx& ctx, Tensor out, Tensor tokens, const EmbedTensors& params);
/// Where grads.tied, the head's sum is in grads.wte already, and this call's sum is added to it.
void embed_backward_weight(const Ctx& ctx, const EmbedTensors& grads, Tensor dout, Tensor tokens,
                           Into into);

/// out (B,T,C) = layer norm or RMSNorm of inp (B,T,C).
void norm_forward(const Ctx& ctx, Tensor out, const NormSaved& saved, Tensor inp,
                  const Affine& params);
void norm_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp,
                         const NormSaved& saved, const Affine& params);
void norm_backward_weight(const Ctx& ctx, const Affine& grads, Tensor dout, Tensor inp,
                          const NormSaved& saved, Into into);

/// saved.qkv = inp qkv^T + bias; then saved.angles turn queries and keys. inp (B,T,C)
void qkv_forward(const Ctx& ctx, const AttnSaved& saved, Tensor inp, const AttnTensors& params);
/// First turns d.dqkv back, in place. qkv_backward_weight reads the result.
void qkv_backward_input(const Ctx& ctx, Tensor dinp, const AttnGrads& d, const AttnSaved& saved,
                        const AttnTensors& params);
void qkv_backward_weight(const Ctx& ctx, const AttnTensors& grads, const AttnGrads& d, Tensor inp,
                         Into into);
/// Turns queries and keys of qkv (or their gradients) in place by saved.angles, or back.
void turn(const Ctx& ctx, Tensor qkv, const AttnSaved& saved, bool back);
/// saved.att and saved.lse = attention over whole sequences, from saved.qkv. It has no parameters.
void attend_forward(const Ctx& ctx, const AttnSaved& saved);
void attend_backward_input(const Ctx& ctx, const AttnGrads& d, const AttnSaved& saved);
/// product (B,T,C) = saved.att proj^T, without the bias of proj.
void proj_forward(const Ctx& ctx, Tensor product, const AttnSaved& saved,
                  const AttnTensors& params);
void proj_backward_input(const Ctx& ctx, const AttnGrads& d, Tensor dproduct,
                         const AttnTensors& params);
void proj_backward_weight(const Ctx& ctx, const AttnTensors& grads, Tensor dproduct,
                          const AttnSaved& saved, Into into);
/// All three parts: product (B,T,C) = attention(inp qkv^T) proj^T, without the bias of proj.
void attn_forward(const Ctx& ctx, Tensor product, const AttnSaved& saved, Tensor inp,
                  const AttnTensors& params);
/// Computes att and lse again from qkv, if they were not kept.
void attn_recompute(const Ctx& ctx, const AttnSaved& saved);
void attn_backward_input(const Ctx& ctx, Tensor dinp, const AttnGrads& d, Tensor dproduct,
                         const AttnSaved& saved, const AttnTensors& params);
void attn_backward_weight(const Ctx& ctx, const AttnTensors& grads, const AttnGrads& d,
                          Tensor dproduct, Tensor inp, const AttnSaved& saved, Into into);

/// product (B,T,C) = act(inp fc^T + bias) proj^T, without the bias of proj. act is SwiGLU if fc is
/// twice as wide as act's output, else GELU.
void mlp_forward(const Ctx& ctx, Tensor product, const MlpSaved& saved, Tensor inp,
                 const MlpTensors& params);
/// Computes act again from fc, if it was not kept. Does nothing if the block has no MLP for all
/// tokens.
void mlp_recompute(const Ctx& ctx, const MlpSaved& saved);
void mlp_backward_input(const Ctx& ctx, Tensor dinp, const MlpGrads& d, Tensor dproduct,
                        const MlpSaved& saved, const MlpTensors& params);
void mlp_backward_weight(const Ctx& ctx, const MlpTensors& grads, const MlpGrads& d,
                         Tensor dproduct, Tensor inp, const MlpSaved& saved, Into into);

/// The activation function alone; and its gradient, which is d.dfc from d.dact.
void act_forward(const Ctx& ctx, const MlpSaved& saved);
void act_backward(const Ctx& ctx, const MlpGrads& d, const MlpSaved& saved);

/// out = residual + (product + bias), all (B,T,C); bias (C) or null. dout itself is the gradient of
/// both product and residual.
void residual_forward(const Ctx& ctx, Tensor out, Tensor residual, Tensor product, Tensor bias);
/// The residual is also the input of the branch: dresidual = dresidual + dbranch, (B,T,C).
void residual_backward_input(const Ctx& ctx, Tensor dresidual, Tensor dbranch);
/// The same if dout must be kept: dresidual = dout + dbranch.
void residual_backward_input(const Ctx& ctx, Tensor dresidual, Tensor dout, Tensor dbranch);
/// dbias (C) = the sum of dout over all tokens. Does nothing if dbias is null. bias_backward_weight
/// is the same for a linear layer.
void residual_backward_weight(const Ctx& ctx, Tensor dbias, Tensor dout, Into into);
void bias_backward_weight(const Ctx& ctx, Tensor dbias, Tensor dout, Into into);

/// logits (B,T,Vp) = inp w^T, inp (B,T,C), w (Vp,C).
void head_forward(const Ctx& ctx, Tensor logits, Tensor inp, Tensor w);
void head_backward_input(const Ctx& ctx, Tensor dinp, Tensor dlogits, Tensor w);
void head_backward_weight(const Ctx& ctx, Tensor dw, Tensor dlogits, Tensor inp, Into into);
/// losses (B): the cross-entropy of each sequence, summed over its targets (B,T) I32. Columns of
/// logits from `vocab` on are padding. Replaces logits by their gradient times scale, so logits are
/// never held twice.
void head_loss_and_gradient(const Ctx& ctx, Tensor losses, Tensor logits, Tensor targets,
                            int64_t vocab, float scale);
/// The same losses without a gradient. logits stay as they are.
void head_loss(const Ctx& ctx, Tensor losses, Tensor logits, Tensor targets, int64_t vocab);

/// What a softmax over columns that ranks split must know of all ranks: (B,T) each. All null: this
/// rank has all columns, and the softmax is one operation.
struct SoftmaxSums {
  Tensor max, sum, target;
};
/// Both functions above, in parts between which ranks exchange. First maxima,
void head_max(const Ctx& ctx, const SoftmaxSums& all, Tensor logits, int64_t vocab);
/// then sums (joined as a tree) and logits of targets (-0 on all ranks but one).
void head_sum(const Ctx& ctx, const SoftmaxSums& all, Tensor logits, Tensor targets, int64_t vocab);
void head_loss_and_gradient(const Ctx& ctx, Tensor losses, Tensor logits, const SoftmaxSums& all,
                            Tensor targets, int64_t vocab, float scale);
void head_loss(const Ctx& ctx, Tensor losses, Tensor logits, const SoftmaxSums& all, Tensor targets,
               int64_t vocab);

}  // namespace ladder
