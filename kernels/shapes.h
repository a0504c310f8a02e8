// Checks the shapes of every operation, in one place for all tables.
//
// Each check takes the tensors of an operation in the order of kernels.h. It returns the extents by
// their letters, or throws CheckError if dtypes or extents do not fit together.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/tensor.h"

namespace ladder {

/// P is the number of positions; 0 if there is no table of them.
struct EmbedShape {
  int64_t B, T, C, V, P;
};
/// A norm of B T rows.
struct NormShape {
  int64_t B, T, C;
};
/// A linear layer from K to N channels, row by row.
struct MatmulShape {
  int64_t rows, N, K;
};
/// The gradient of a linear layer's weight.
struct MatmulWeightShape {
  int64_t B, T, N, K;
};
/// The gradient of a linear layer's bias.
struct BiasShape {
  int64_t B, T, N;
};
/// NKV groups of heads of HS channels. Each group is `turned` queries and keys, then a value.
struct RopeShape {
  int64_t B, T, NKV, turned, HS;
  constexpr int64_t row() const { return NKV * (turned + 1) * HS; }
};
/// NH query heads and NKV key-value heads, of HS channels each.
struct AttentionShape {
  int64_t B, T, NH, NKV, HS;
};
/// Tq queries against Tk keys.
struct AttentionPieceShape {
  int64_t B, Tq, Tk, NH, NKV, HS;
};
/// R rows of G groups of `to` or `from` columns.
struct ColumnsShape {
  int64_t R, G, to, from;
};
/// The residual stream, row by row.
struct ResidualShape {
  int64_t rows, C;
};
/// B T tokens, each of which takes k of E experts.
struct RouteShape {
  int64_t B, T, E, k;
  constexpr int64_t tokens() const { return B * T; }
};
/// The same, with room for M rows of C channels.
struct ExpertShape {
  int64_t B, T, k, E, M, C;
};
/// The linear layers of E experts over M rows.
struct GroupedShape {
  int64_t E, M, N, K;
};
/// Logits of B T tokens.
struct CrossEntropyShape {
  int64_t B, T, V;
};
/// A matrix of R rows; a vector is one row.
struct MatrixShape {
  int64_t R, N;
};

EmbedShape check_embed_forward(const Tensor& out, const Tensor& tokens, const Tensor& wte,
                               const Tensor& wpe);
EmbedShape check_embed_backward(const Tensor& dwte, const Tensor& dwpe, const Tensor& dout,
                                const Tensor& tokens);

/// mean, b and db may be null. So may wpe and dwpe above.
NormShape check_norm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd,
                             const Tensor& inp, const Tensor& w, const Tensor& b);
NormShape check_norm_backward_input(const Tensor& dinp, const Tensor& dout, const Tensor& inp,
                                    const Tensor& w, const Tensor& mean, const Tensor& rstd);
NormShape check_norm_backward_weight(const Tensor& dw, const Tensor& db, const Tensor& dout,
                                     const Tensor& inp, const Tensor& mean, const Tensor& rstd);

MatmulShape check_matmul_forward(const Tensor& out, const Tensor& inp, const Tensor& w,
                                 const Tensor& bias, int leaves);
MatmulShape check_matmul_backward_input(const Tensor& dinp, const Tensor& dout, const Tensor& w,
                                        int leaves);
MatmulWeightShape check_matmul_backward_weight(const Tensor& dw, const Tensor& dout,
                                               const Tensor& inp);
BiasShape check_bias_backward(const Tensor& db, const Tensor& dout);

/// gelu_forward, gelu_backward, add, cast, scale: the number of elements.
int64_t check_gelu_forward(const Tensor& out, const Tensor& inp);
int64_t check_gelu_backward(const Tensor& dinp, const Tensor& dout, const Tensor& inp);
int64_t check_add(const Tensor& out, const Tensor& a, const Tensor& b);
int64_t check_cast(const Tensor& out, const Tensor& inp);
int64_t check_scale(const Tensor& x);
ResidualShape check_residual_forward(const Tensor& out, const Tensor& residual,
                                     const Tensor& product, const Tensor& bias);

/// swiglu_*: the number of elements of the output.
int64_t check_swiglu_forward(const Tensor& out, const Tensor& inp);
int64_t check_swiglu_backward(const Tensor& dinp, const Tensor& dout, const Tensor& inp);

RouteShape check_route_forward(const Tensor& expert, const Tensor& weight, const Tensor& scores,
                               const Tensor& load, const Tensor& losses, const Tensor& logits,
                               const Tensor& bias);
RouteShape check_route_backward(const Tensor& dlogits, const Tensor& dweight, const Tensor& expert,
                                const Tensor& scores, const Tensor& load, const Tensor& logits);
/// C is 0 in the result, as it is below where there are no channels.
ExpertShape check_expert_rows(const ExpertRows& rows, const Tensor& expert, int64_t capacity);
ExpertShape check_gather_rows(const Tensor& out, const Tensor& inp, const ExpertRows& rows);
GroupedShape check_grouped_matmul_forward(const Tensor& out, const Tensor& inp, const Tensor& w,
                                          const ExpertRows& rows, int leaves);
GroupedShape check_grouped_matmul_backward_input(const Tensor& dinp, const Tensor& dout,
                                                 const Tensor& w, const ExpertRows& rows,
                                                 int leaves);
GroupedShape check_grouped_matmul_backward_weight(const Tensor& dw, const Tensor& dout,
                                                  const Tensor& inp, const ExpertRows& rows);
ExpertShape check_combine_forward(const Tensor& out, const Tensor& y, const ExpertRows& rows,
                                  const Tensor& expert, const Tensor& weight);
ExpertShape check_combine_backward(const Tensor& dy, const Tensor& dweight, const Tensor& dout,
                                   const Tensor& y, const ExpertRows& rows, const Tensor& weight);

RopeShape check_rope(const Tensor& qkv, const Tensor& angles, int64_t heads);

AttentionShape check_attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv);
AttentionShape check_attention_backward(const Tensor& dqkv, const Tensor& dout, const Tensor& qkv,
                                        const Tensor& out, const Tensor& lse);
AttentionPieceShape check_attention_piece_forward(const Tensor& o, const Tensor& m, const Tensor& l,
                                                  const Tensor& q, const Tensor& kv,
                                                  const AttentionPlace& place);
AttentionPieceShape check_attention_piece_backward(const Tensor& dq, const Tensor& dkv,
                                                   const Tensor& dout, const Tensor& q,
                                                   const Tensor& kv, const Tensor& out,
                                                   const Tensor& lse, const AttentionPlace& place);
/// Tk is 0 and NKV is NH in the result: keys and groups play no part.
AttentionPieceShape check_attention_merge(const Tensor& o, const Tensor& m, const Tensor& l,
                                          const Tensor& later_o, const Tensor& later_m,
                                          const Tensor& later_l);
AttentionPieceShape check_attention_finish(const Tensor& out, const Tensor& lse, const Tensor& o,
                                           const Tensor& m, const Tensor& l);
ColumnsShape check_copy_columns(const Tensor& to, int64_t to_column, const Tensor& from,
                                int64_t from_column, int64_t count);

/// ctx says how many losses there are.
CrossEntropyShape check_cross_entropy(const Ctx& ctx, const Tensor& losses, const Tensor& dlogits,
                                      const Tensor& logits, const Tensor& targets, int64_t vocab);
CrossEntropyShape check_softmax_max(const Tensor& max, const Tensor& logits, int64_t vocab);
CrossEntropyShape check_softmax_sum(const Tensor& sum, const Tensor& target, const Tensor& logits,
                                    const Tensor& max, const Tensor& targets, int64_t vocab);
CrossEntropyShape check_softmax_loss(const Ctx& ctx, const Tensor& losses, const Tensor& dlogits,
                                     const Tensor& logits, const Tensor& max, const Tensor& sum,
                                     const Tensor& target, const Tensor& targets, int64_t vocab);

MatrixShape check_squared_norm(const Tensor& limbs, const Tensor& x);
MatrixShape check_adaptive_clip(const Tensor& grad, const Tensor& grad_limbs,
                                const Tensor& weight_limbs);

/// The elementwise optimizers: the number of elements.
int64_t check_sgd_update(const Tensor& param, const Tensor& velocity, const Tensor& grad);
int64_t check_adamw_update(const Tensor& param, const Tensor& m, const Tensor& v,
                           const Tensor& grad);
int64_t check_lion_update(const Tensor& param, const Tensor& m, const Tensor& grad);
MatrixShape check_adafactor_update(const Tensor& param, const Tensor& row, const Tensor& col,
                                   const Tensor& grad);
int64_t check_adamw8bit_update(const Tensor& param, const Tensor& m_code, const Tensor& m_scale,
                               const Tensor& v_code, const Tensor& v_scale, const Tensor& grad);

/// Tokens and targets come from data, so all are checked before the first is used as an index.
inline void check_token(int32_t token, int64_t V) {
  CHECK(token >= 0 && token < V, "token {} of a vocabulary of {}", token, V);
}

/// Each token must be a row of this rank, or kElsewhere.
inline void check_tokens(const Tensor& tokens, int64_t V) {
  const int32_t* token = tokens.data<int32_t>();
  for (int64_t i = 0; i < tokens.size(); ++i)
    if (token[i] != kElsewhere) check_token(token[i], V);
}

/// Each target must be a column, or kIgnore, or, if `elsewhere`, kElsewhere.
inline void check_targets(const Tensor& targets, int64_t vocab, bool elsewhere) {
  const int32_t* target = targets.data<int32_t>();
  for (int64_t i = 0; i < targets.size(); ++i)
    if (target[i] != kIgnore && !(elsewhere && target[i] == kElsewhere))
      check_token(target[i], vocab);
}

/// Whether a token or a target is a row of this rank: neither kIgnore nor kElsewhere.
inline bool is_here(int32_t index) { return index != kIgnore && index != kElsewhere; }

}  // namespace ladder
