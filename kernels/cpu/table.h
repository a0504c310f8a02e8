// The operations of kernels/kernels.h with threads and SIMD, one family a file.
#pragma once

#include "kernels/kernels.h"

namespace ladder::cpu {

/// For each thread. It bounds the blocks of a product, the sequence length of attention, the tokens
/// of one call of embed_backward, of a router and of a loss, and the rows of adafactor.
constexpr int64_t kScratchBytes = 8 << 20;

void embed_forward(const Ctx&, Tensor out, Tensor tokens, Tensor wte, Tensor wpe);
void embed_backward(const Ctx&, Tensor dwte, Tensor dwpe, Tensor dout, Tensor tokens, Into);

void norm_forward(const Ctx&, Tensor out, Tensor mean, Tensor rstd, Tensor inp, Tensor w, Tensor b);
void norm_backward_input(const Ctx&, Tensor dinp, Tensor dout, Tensor inp, Tensor w, Tensor mean,
                         Tensor rstd);
void norm_backward_weight(const Ctx&, Tensor dw, Tensor db, Tensor dout, Tensor inp, Tensor mean,
                          Tensor rstd, Into);

void matmul_forward(const Ctx&, Tensor out, Tensor inp, Tensor w, Tensor bias, int leaves);
void matmul_backward_input(const Ctx&, Tensor dinp, Tensor dout, Tensor w, int leaves);
void matmul_backward_weight(const Ctx&, Tensor dw, Tensor dout, Tensor inp, Into);
void bias_backward(const Ctx&, Tensor db, Tensor dout, Into);

void gelu_forward(const Ctx&, Tensor out, Tensor inp);
void gelu_backward(const Ctx&, Tensor dinp, Tensor dout, Tensor inp);

void swiglu_forward(const Ctx&, Tensor out, Tensor inp);
void swiglu_backward(const Ctx&, Tensor dinp, Tensor dout, Tensor inp);

void route_forward(const Ctx&, Tensor expert, Tensor weight, Tensor scores, Tensor load,
                   Tensor losses, Tensor logits, Tensor bias, const RouteRule&);
void route_backward(const Ctx&, Tensor dlogits, Tensor dweight, Tensor expert, Tensor scores,
                    Tensor load, Tensor logits, const RouteRule&, float balance, float z);
void expert_rows(const Ctx&, const ExpertRows&, Tensor expert, int64_t capacity);
void gather_rows(const Ctx&, Tensor out, Tensor inp, const ExpertRows&);
void grouped_matmul_forward(const Ctx&, Tensor out, Tensor inp, Tensor w, const ExpertRows&,
                            int leaves);
void grouped_matmul_backward_input(const Ctx&, Tensor dinp, Tensor dout, Tensor w,
                                   const ExpertRows&, int leaves);
void grouped_matmul_backward_weight(const Ctx&, Tensor dw, Tensor dout, Tensor inp,
                                    const ExpertRows&, Into);
void combine_forward(const Ctx&, Tensor out, Tensor y, const ExpertRows&, Tensor expert,
                     Tensor weight);
void combine_backward(const Ctx&, Tensor dy, Tensor dweight, Tensor dout, Tensor y,
                      const ExpertRows&, Tensor weight);

void rope(const Ctx&, Tensor qkv, Tensor angles, int64_t heads, bool back);

void attention_forward(const Ctx&, Tensor out, Tensor lse, Tensor qkv);
void attention_backward(const Ctx&, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse);
void attention_piece_forward(const Ctx&, Tensor o, Tensor m, Tensor l, Tensor q, Tensor kv,
                             const AttentionPlace&);
void attention_merge(const Ctx&, Tensor o, Tensor m, Tensor l, Tensor later_o, Tensor later_m,
                     Tensor later_l);
void attention_finish(const Ctx&, Tensor out, Tensor lse, Tensor o, Tensor m, Tensor l);
void attention_piece_backward(const Ctx&, Tensor dq, Tensor dkv, Tensor dout, Tensor q, Tensor kv,
                              Tensor out, Tensor lse, const AttentionPlace&);
void copy_columns(const Ctx&, Tensor to, int64_t to_column, Tensor from, int64_t from_column,
                  int64_t count);

void residual_forward(const Ctx&, Tensor out, Tensor residual, Tensor product, Tensor bias);
void add(const Ctx&, Tensor out, Tensor a, Tensor b);
void cast(const Ctx&, Tensor out, Tensor inp);
void scale(const Ctx&, Tensor x, float factor);

void cross_entropy(const Ctx&, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                   int64_t vocab, float scale);
void softmax_max(const Ctx&, Tensor max, Tensor logits, int64_t vocab);
void softmax_sum(const Ctx&, Tensor sum, Tensor target, Tensor logits, Tensor max, Tensor targets,
                 int64_t vocab);
void softmax_loss(const Ctx&, Tensor losses, Tensor dlogits, Tensor logits, Tensor max, Tensor sum,
                  Tensor target, Tensor targets, int64_t vocab, float scale);

void squared_norm(const Ctx&, Tensor limbs, Tensor x);
void adaptive_clip(const Ctx&, Tensor grad, Tensor grad_limbs, Tensor weight_limbs, float clip);

void sgd_update(const Ctx&, Tensor param, Tensor velocity, Tensor grad, const SgdStep&);
void adamw_update(const Ctx&, Tensor param, Tensor m, Tensor v, Tensor grad, const AdamStep&);
void lion_update(const Ctx&, Tensor param, Tensor m, Tensor grad, const LionStep&);
void adafactor_update(const Ctx&, Tensor param, Tensor row, Tensor col, Tensor grad,
                      const AdafactorStep&);
void adamw8bit_update(const Ctx&, Tensor param, Tensor m_code, Tensor m_scale, Tensor v_code,
                      Tensor v_scale, Tensor grad, const AdamStep&);

}  // namespace ladder::cpu
