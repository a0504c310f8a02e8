// Causal attention as its formula reads, with the whole T x T matrix of probabilities of each head
// in memory: what attention in blocks (kernels/cpu/attention_forward.cpp) is measured against. Its
// products and exponentials are those of the cpu table, and its heads run side by side, too.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder::bench {

/// P[t,u] = softmax_u(q_t . k_u / sqrt(HS)) for u <= t, else 0;  out_t = sum_u P[t,u] v_u.
/// out (B,T,NH*HS); P (B,NH,T,T); qkv (B,T,3*NH*HS) head by head, as in kernels/kernels.h; F32
void plain_attention_forward(const Ctx& ctx, Tensor out, Tensor P, Tensor qkv);

/// dP = dout v^T;  dS[t,u] = P[t,u] (dP[t,u] - sum_w P[t,w] dP[t,w]);
/// dv = P^T dout;  dq = dS k / sqrt(HS);  dk = dS^T q / sqrt(HS).
/// dqkv as qkv; dS as P: room; dout as out
void plain_attention_backward(const Ctx& ctx, Tensor dqkv, Tensor dS, Tensor dout, Tensor qkv,
                              Tensor P);

/// Throws unless both forms agree, to some roundings, on a small case.
void check_plain_attention(const Ctx& ctx);

}  // namespace ladder::bench
