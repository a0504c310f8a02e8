// attn and mlp (common/model/parts.h) with products that read FP8 codes.
//
//   forward, backward_input   x -> codes, then the product
//   backward_weight           the product of two codes, which forward and backward_input have made
//
// Attention, activation functions and biases read the tensors that codes are made from. Without
// codes, the parts are those of common/model/parts.h.
#pragma once

#include "common/model/parts.h"
#include "kernels/cost.h"
#include "kernels/kernels.h"

namespace ladder {

/// Codes of the tensors that the two products of attn or mlp read, each with its scale. All are
/// null unless the weights are FP8. A smaller batch uses the first sequences of each.
struct Fp8Codes {
  Tensor inp;       ///< (B,T,C) E4M3, the input of the part
  Tensor mid;       ///< (B,T,C) or (B,T,F) E4M3: att or act
  Tensor dmid;      ///< as qkv or fc, E5M2: dqkv or dfc
  Tensor dproduct;  ///< (B,T,C) E5M2
};

/// What a product reads: the codes of x, or x itself if there are none.
inline Tensor coded(Tensor codes, Tensor x) { return codes ? codes.first(x.dim(0)) : x; }

/// The same, but makes the codes first.
inline Tensor encode(const Ctx& ctx, Tensor codes, Tensor x) {
  if (codes) ctx.kernels->cast(ctx, coded(codes, x), x);
  return coded(codes, x);
}

// ---- a linear layer: three products, counted ----------------------------------------------------

inline void count_product(const Ctx& ctx, Tensor x, Tensor w) {
  if (ctx.flops) *ctx.flops += cost::matmul(x.rows(), w.dim(0), w.dim(1)).flops;
}
/// @param leaves of the sum over channels: ctx.leaves where tensor ranks could split it, else 1
inline void linear_forward(const Ctx& ctx, Tensor out, Tensor inp, const Affine& w, int leaves) {
  count_product(ctx, inp, w.w);
  ctx.kernels->matmul_forward(ctx, out, inp, w.w, w.b, leaves);
}
inline void linear_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor w, int leaves) {
  count_product(ctx, dout, w);
  ctx.kernels->matmul_backward_input(ctx, dinp, dout, w, leaves);
}
inline void linear_backward_weight(const Ctx& ctx, Tensor dw, Tensor dcodes, Tensor dout,
                                   Tensor codes, Tensor inp, Into into) {
  count_product(ctx, inp, dw);
  ctx.kernels->matmul_backward_weight(ctx, dw, coded(dcodes, dout), coded(codes, inp), into);
}

// ---- attn ---------------------------------------------------------------------------------------

inline void attn_forward(const Ctx& ctx, Tensor product, const AttnSaved& saved,
                         const Fp8Codes& codes, Tensor inp, const AttnTensors& params) {
  const Span span(ctx, "attn_forward");
  linear_forward(ctx, saved.qkv, encode(ctx, codes.inp, inp), params.qkv, 1);
  turn(ctx, saved.qkv, saved, /*back=*/false);  // rotary positions, of LLaMA's block alone (19)
  attend_forward(ctx, saved);
  const Tensor att = encode(ctx, codes.mid, saved.att);
  linear_forward(ctx, product, att, {params.proj_w, {}}, ctx.leaves);
}

inline void attn_backward_input(const Ctx& ctx, Tensor dinp, const AttnGrads& d, Tensor dproduct,
                                const AttnSaved& saved, const Fp8Codes& codes,
                                const AttnTensors& params) {
  const Span span(ctx, "attn_backward_input");
  linear_backward_input(ctx, d.datt, encode(ctx, codes.dproduct, dproduct), params.proj_w, 1);
  attend_backward_input(ctx, d, saved);
  turn(ctx, d.dqkv, saved, /*back=*/true);
  linear_backward_input(ctx, dinp, encode(ctx, codes.dmid, d.dqkv), params.qkv.w, ctx.leaves);
}

inline void attn_backward_weight(const Ctx& ctx, const AttnTensors& grads, const AttnGrads& d,
                                 Tensor dproduct, Tensor inp, const AttnSaved& saved,
                                 const Fp8Codes& codes, Into into) {
  const Span span(ctx, "attn_backward_weight");
  linear_backward_weight(ctx, grads.proj_w, codes.dproduct, dproduct, codes.mid, saved.att, into);
  linear_backward_weight(ctx, grads.qkv.w, codes.dmid, d.dqkv, codes.inp, inp, into);
  bias_backward_weight(ctx, grads.qkv.b, d.dqkv, into);
}

// ---- mlp ----------------------------------------------------------------------------------------

/// One operation makes codes of GELU's values, which only a product reads. SwiGLU (chapter 19) has
/// no such operation; its fc is twice as wide as its act.
inline bool is_gelu(const MlpSaved& saved) { return saved.fc.shape == saved.act.shape; }

/// What the second product reads: the activation function's values, or their codes.
inline Tensor act_encode(const Ctx& ctx, Tensor codes, const MlpSaved& saved) {
  if (codes && is_gelu(saved)) {
    ctx.kernels->gelu_forward_codes(ctx, coded(codes, saved.act), saved.act, saved.fc);
    return coded(codes, saved.act);
  }
  act_forward(ctx, saved);
  return encode(ctx, codes, saved.act);
}

/// d.dfc, or its codes beside it.
inline Tensor act_backward_encode(const Ctx& ctx, Tensor codes, const MlpGrads& d,
                                  const MlpSaved& saved) {
  if (codes && is_gelu(saved)) {
    ctx.kernels->gelu_backward_codes(ctx, coded(codes, d.dfc), d.dfc, d.dact, saved.fc);
    return coded(codes, d.dfc);
  }
  act_backward(ctx, d, saved);
  return encode(ctx, codes, d.dfc);
}

inline void mlp_forward(const Ctx& ctx, Tensor product, const MlpSaved& saved,
                        const Fp8Codes& codes, Tensor inp, const MlpTensors& params) {
  const Span span(ctx, "mlp_forward");
  linear_forward(ctx, saved.fc, encode(ctx, codes.inp, inp), params.fc, 1);
  const Tensor act = act_encode(ctx, codes.mid, saved);
  linear_forward(ctx, product, act, {params.proj_w, {}}, ctx.leaves);
}

inline void mlp_backward_input(const Ctx& ctx, Tensor dinp, const MlpGrads& d, Tensor dproduct,
                               const MlpSaved& saved, const Fp8Codes& codes,
                               const MlpTensors& params) {
  const Span span(ctx, "mlp_backward_input");
  linear_backward_input(ctx, d.dact, encode(ctx, codes.dproduct, dproduct), params.proj_w, 1);
  const Tensor dfc = act_backward_encode(ctx, codes.dmid, d, saved);
  linear_backward_input(ctx, dinp, dfc, params.fc.w, ctx.leaves);
}

inline void mlp_backward_weight(const Ctx& ctx, const MlpTensors& grads, const MlpGrads& d,
                                Tensor dproduct, Tensor inp, const MlpSaved& saved,
                                const Fp8Codes& codes, Into into) {
  const Span span(ctx, "mlp_backward_weight");
  linear_backward_weight(ctx, grads.proj_w, codes.dproduct, dproduct, codes.mid, saved.act, into);
  linear_backward_weight(ctx, grads.fc.w, codes.dmid, d.dfc, codes.inp, inp, into);
  bias_backward_weight(ctx, grads.fc.b, d.dfc, into);
}

}  // namespace ladder
