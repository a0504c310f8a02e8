// The contents page of the ground floor: every operation, its formula and its shapes.
//
// Tables of them: `ref` (plain loops, float and double; the specification), `cpu` (threads and
// SIMD), and two of kernels/cuda/ (for GPUs, and the same run by the CPU). Common to all:
//   - shapes come from the tensors; outputs come first, then inputs;
//   - activations and their gradients are of one dtype: F32 (F64 in `ref`), BF16 or F16, and
//     parameters of the same; tokens and targets are I32;
//   - beside 16-bit activations, statistics (mean, rstd, lse, max, sum, target, losses) and
//     gradients of parameters are F32. Arithmetic is FP32, rounded once where a result is stored;
//   - beside 16-bit activations, either factor of a matmul or both may be FP8 (kernels/narrow.h):
//     E4M3 or E5M2 with a scale. Backward of a weight reads transposed copies, if there are any;
//   - an activation gradient is written; a parameter gradient is written or added (`Into`);
//   - a sum of nothing is -0 (kernels/tree.h);
//   - no result depends on ctx.threads; nor, in `ref` and `cpu`, on the micro-batches that a batch
//     is cut into: their sums have the order of docs/same_bits.md, those of CUDA of docs/cuda.md;
//   - shapes that do not fit throw CheckError.
//
// Letters: B sequences, T tokens of a sequence, C channels, NH heads, HS = C / NH channels of a
// head, V vocabulary (padded), F hidden channels of an MLP, K and N the inner and outer extents of
// a matrix product, E experts, k experts that a token takes, M rows of experts.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder {

/// What a parameter gradient does to its buffer. The sum of a call is finished first and
/// added once: buffer = buffer + sum.
enum class Into : uint8_t { Write, Add };

/// A target that is not learned: no loss, no gradient.
constexpr int32_t kIgnore = -1;

/// A token or a target whose row another rank has: tensor parallelism cuts the vocabulary.
constexpr int32_t kElsewhere = -2;

/// Limbs of a squared norm: see Kernels::squared_norm.
constexpr int64_t kLimbs = 12;

/// Elements of one quantised block of 8-bit optimizer state; shards start at multiples of it.
constexpr int64_t kQuantBlock = 64;

/// One step of SGD (chapter 01).
struct SgdStep {
  float lr;
  float momentum;
  bool nesterov;
};

/// One step of Adam, AdamW or 8-bit AdamW (chapter 02).
struct AdamStep {
  float lr;
  float beta1, beta2;
  float eps;
  float weight_decay;  ///< 0 for biases and layer norms
  bool decoupled;      ///< AdamW: decay the weight; else Adam with L2: decay enters the gradient
  float correction1;   ///< 1 - beta1^t, t from 1
  float correction2;   ///< 1 - beta2^t
};

/// One step of Lion (chapter 02).
struct LionStep {
  float lr;
  float beta1, beta2;
  float weight_decay;
};

/// One step of Adafactor (chapter 02).
struct AdafactorStep {
  float lr;
  float beta2;  ///< of this step: 1 - t^-0.8
  float eps;    ///< added to squared gradients: 1e-30
  float clip;   ///< largest root mean square of an update: 1
  float weight_decay;
};

/// Where a piece of attention lies in its sequence. The queries are two runs of tokens, as a rank
/// has them under zig-zag order (token_leaves.h): rows [0, Tq / 2), and the rest.
struct AttentionPlace {
  int64_t T = 0;                     ///< tokens of the whole sequence
  std::array<int64_t, 2> queries{};  ///< the first token of each of the two
  int64_t keys = 0;                  ///< the first key
};

/// How a router scores experts and weighs those that a token takes (chapter 21).
struct RouteRule {
  bool sigmoid;      ///< scores are logistic functions (arXiv 2412.19437); else a softmax
  bool renormalize;  ///< the weights of a token are divided by their sum (arXiv 2401.04088)
};

/// Which rows experts have: what expert_rows makes and the operations behind it read. Rows are
/// sorted by expert, those of an expert by sequence and token. On a device `offsets` lies where the
/// host can read it, too.
struct ExpertRows {
  Tensor offsets;  ///< (E+1) I32: rows [offsets[e], offsets[e+1]) are those of expert e
  Tensor row;      ///< (B,T,k) I32: the row of a token and its j-th expert, kNoRow if it has none
  Tensor from;     ///< (M) I32: (b T + t) k + j of what lies in a row
};

/// A token that its expert drops, or whose expert another rank has.
constexpr int32_t kNoRow = -1;

/// A table of kernels: one pointer for each operation. ref, cpu and cuda each fill one, by the
/// names in kernels/operations.inc.
struct Kernels {
  const char* name;
  int64_t scratch_bytes;  ///< of Ctx::scratch for each of ctx.threads; a device counts as one
  int64_t max_head;       ///< most channels of a head that attention takes
  /// Whether its products read FP8 codes along either dimension: `cast` writes both copies.
  bool turns_fp8 = false;

  // ---- embedding -------------------------------------------------------------------------
  /// out[b,t,:] = wte[tokens[b,t],:] + wpe[t,:];  -0 where the token is kElsewhere: the rank that
  /// has its row adds the position, too, and ranks are summed. Without wpe: the token's row alone.
  /// out (B,T,C); tokens (B,T) I32; wte (V,C); wpe (P,C), P >= T, or null
  void (*embed_forward)(const Ctx&, Tensor out, Tensor tokens, Tensor wte, Tensor wpe);

  /// dwte[v,:] = sum of dout[b,t,:] where tokens[b,t] = v;  dwpe[t,:] = sum_b dout[b,t,:].
  /// dwte is summed as matmul_backward_weight does. Rows not met become -0, or keep their value.
  /// A token that is kElsewhere adds to dwpe only.
  /// dwte (V,C); dwpe (P,C) or null; dout (B,T,C); tokens (B,T) I32
  void (*embed_backward)(const Ctx&, Tensor dwte, Tensor dwpe, Tensor dout, Tensor tokens, Into);

  // ---- layer norm (arXiv 1607.06450), RMSNorm (arXiv 1910.07467) --------------------------
  /// mean = sum_c inp / C;  rstd = 1 / sqrt(sum_c (inp - mean)^2 / C + 1e-5);
  /// out = (inp - mean) rstd w + b.   RMSNorm is this without mean: 0 stands in its place, in all
  /// three operations. Without b: out = (inp - mean) rstd w.
  /// out, inp (B,T,C); mean (B,T) or null; rstd (B,T); w (C); b (C) or null
  void (*norm_forward)(const Ctx&, Tensor out, Tensor mean, Tensor rstd, Tensor inp, Tensor w,
                       Tensor b);

  /// With xhat = (inp - mean) rstd and g = dout w:
  /// dinp = rstd (g - sum_c g / C - xhat sum_c (g xhat) / C), without mean
  /// dinp = rstd (g - xhat sum_c (g xhat) / C).   Shapes as norm_forward.
  void (*norm_backward_input)(const Ctx&, Tensor dinp, Tensor dout, Tensor inp, Tensor w,
                              Tensor mean, Tensor rstd);

  /// dw = sum_bt dout xhat;  db = sum_bt dout.
  /// Summed over the tokens of a sequence as a vector (kernels/token_leaves.h), then over
  /// sequences.   dw (C); db (C) or null; the rest as norm_forward
  void (*norm_backward_weight)(const Ctx&, Tensor dw, Tensor db, Tensor dout, Tensor inp,
                               Tensor mean, Tensor rstd, Into);

  // ---- linear layer: out = inp W^T + bias, W as in torch.nn.Linear ------------------------
  /// out[r,n] = (sum_k inp[r,k] w[n,k]) + bias[n]; the sum falls into `leaves` leaves of K.
  /// out (..,N); inp (..,K), as many rows; w (N,K); bias (N) or null
  void (*matmul_forward)(const Ctx&, Tensor out, Tensor inp, Tensor w, Tensor bias, int leaves);

  /// dinp[r,k] = sum_n dout[r,n] w[n,k]; the sum falls into `leaves` leaves of N.
  /// dinp (..,K); dout (..,N); w (N,K)
  void (*matmul_backward_input)(const Ctx&, Tensor dinp, Tensor dout, Tensor w, int leaves);

  /// dw[n,k] = sum_bt dout[b,t,n] inp[b,t,k]: over the tokens of a sequence as a matrix
  /// (kernels/token_leaves.h), then over sequences.
  /// dw (N,K); dout (B,T,N); inp (B,T,K)
  void (*matmul_backward_weight)(const Ctx&, Tensor dw, Tensor dout, Tensor inp, Into);

  /// db[n] = sum_bt dout[b,t,n], summed as norm_backward_weight does.
  /// db (N); dout (B,T,N)
  void (*bias_backward)(const Ctx&, Tensor db, Tensor dout, Into);

  // ---- GELU, tanh form (arXiv 1606.08415) -------------------------------------------------
  /// out = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), x = inp.   any shape
  void (*gelu_forward)(const Ctx&, Tensor out, Tensor inp);

  /// dinp = dout gelu'(inp).   any shape; dinp may be dout
  void (*gelu_backward)(const Ctx&, Tensor dinp, Tensor dout, Tensor inp);

  // The same and a cast to FP8 in one: only the codes are read next.

  /// gelu_forward; codes = cast of out. What out holds afterwards is not said.   codes FP8
  void (*gelu_forward_codes)(const Ctx&, Tensor codes, Tensor out, Tensor inp);

  /// gelu_backward; codes = cast of dinp.   codes FP8
  void (*gelu_backward_codes)(const Ctx&, Tensor codes, Tensor dinp, Tensor dout, Tensor inp);

  // ---- SwiGLU (arXiv 2002.05202) ----------------------------------------------------------
  /// out[f] = silu(g) u,  silu(x) = x s(x),  s(x) = 1 / (1 + exp(-x)),  g = inp[2f], u = inp[2f+1].
  /// Gates and what they let through alternate, so that a cut of F is a cut of 2F. Below -88, where
  /// silu(x) is less than 1e-36 in size, x is taken for -88.   out (..,F); inp (..,2F)
  void (*swiglu_forward)(const Ctx&, Tensor out, Tensor inp);

  /// dinp[2f] = dout u s(g) (1 + g (1 - s(g)));  dinp[2f+1] = dout silu(g).
  /// dinp, inp (..,2F); dout (..,F)
  void (*swiglu_backward)(const Ctx&, Tensor dinp, Tensor dout, Tensor inp);

  // ---- experts (arXiv 2006.16668, 2101.03961): E MLPs, of which each token takes k ------------
  /// scores = softmax of the logits of a token, or the logistic function of each. A token takes the
  /// k experts with the largest scores + bias, ties to the lower expert, a NaN before all numbers;
  /// expert[b,t,:] ascends. The bias only chooses (arXiv 2408.15664).
  ///   weight[j] = s_j = scores[expert[j]], renormalized s_j / sum_i s_i;
  ///   load[b,e] = how many tokens of a sequence take expert e;
  ///   losses[0,b] = sum_e f_e P_e, the balance loss (arXiv 2101.03961), for each sequence as in
  ///     arXiv 2412.19437: f_e = load[b,e] E / (k T);  P_e = sum_t p_e[t] / T, where p_e[t] is the
  ///     score divided by the sum of the token's scores. It is 1 where all loads are the same;
  ///   losses[1,b] = sum_t (log sum_e exp logits[b,t,e])^2 / T, the z-loss (arXiv 2202.08906).
  /// Sums over t are those of vectors. What is not I32 is F32, beside narrow activations, too.
  /// expert (B,T,k) I32; weight (B,T,k); scores, logits (B,T,E); load (B,E) I32; losses (2,B);
  /// bias (E) or null
  void (*route_forward)(const Ctx&, Tensor expert, Tensor weight, Tensor scores, Tensor load,
                        Tensor losses, Tensor logits, Tensor bias, const RouteRule&);

  /// The gradient of the logits: through the weights, and of balance losses[0,b] + z losses[1,b],
  /// where load is a constant.   dlogits (B,T,E); dweight as weight; the rest as route_forward
  void (*route_backward)(const Ctx&, Tensor dlogits, Tensor dweight, Tensor expert, Tensor scores,
                         Tensor load, Tensor logits, const RouteRule&, float balance, float z);

  /// The rows of experts. If capacity is not 0, an expert takes the first `capacity` tokens of each
  /// sequence that choose it and drops the others. What is kElsewhere has no row. `from` behind
  /// offsets[E] is not written.   expert (B,T,k) I32
  void (*expert_rows)(const Ctx&, const ExpertRows&, Tensor expert, int64_t capacity);

  /// out[r] = inp[b,t] for the token that lies in row r.   out (M,C); inp (B,T,C)
  void (*gather_rows)(const Ctx&, Tensor out, Tensor inp, const ExpertRows&);

  // A product for each expert over its rows, in leaves as the matmul of the same name. Rows behind
  // offsets[E] are neither read nor written. Devices read offsets on the host, and so wait first.

  /// out[r,n] = sum_k inp[r,k] w[e,n,k], r a row of expert e.   out (M,N); inp (M,K); w (E,N,K)
  void (*grouped_matmul_forward)(const Ctx&, Tensor out, Tensor inp, Tensor w, const ExpertRows&,
                                 int leaves);

  /// dinp[r,k] = sum_n dout[r,n] w[e,n,k].   dinp (M,K); dout (M,N); w (E,N,K)
  void (*grouped_matmul_backward_input)(const Ctx&, Tensor dinp, Tensor dout, Tensor w,
                                        const ExpertRows&, int leaves);

  /// dw[e,n,k] = sum_r dout[r,n] inp[r,k]: over sequences and tokens as matmul_backward_weight, the
  /// tokens that are no row of e left out.   dw (E,N,K); dout (M,N); inp (M,K)
  void (*grouped_matmul_backward_weight)(const Ctx&, Tensor dw, Tensor dout, Tensor inp,
                                         const ExpertRows&, Into);

  /// out[b,t] = sum_j weight[b,t,j] y[row[b,t,j]]: a tree over the E experts in which those without
  /// a row are absent. So an aligned run of 2^i experts, their numbers counted from its first,
  /// gives a part of that tree, and `add` joins parts. Without weight: the gradient of gather_rows.
  /// out (B,T,C) as y, or F32; y (M,C); expert (B,T,k) I32; weight (B,T,k) F32 or null
  void (*combine_forward)(const Ctx&, Tensor out, Tensor y, const ExpertRows&, Tensor expert,
                          Tensor weight);

  /// dy[row[b,t,j]] = weight[b,t,j] dout[b,t];  dweight[b,t,j] = sum_c dout[b,t,c] y[row,c], 0
  /// where there is no row.   dy, y (M,C); dweight, weight (B,T,k) F32; dout (B,T,C)
  void (*combine_backward)(const Ctx&, Tensor dy, Tensor dweight, Tensor dout, Tensor y,
                           const ExpertRows&, Tensor weight);

  // ---- rotary positions (RoPE, arXiv 2104.09864) ------------------------------------------
  /// Turns each query and each key of qkv in place, by the angles of its token, or back by them:
  /// with c = angles[t,i], s = angles[t,HS/2+i], i < HS/2, a pair (x_i, x_{i+HS/2}) becomes
  /// (x_i c - x_{i+HS/2} s, x_{i+HS/2} c + x_i s), back with -s. It is the gradient of turning.
  /// Pairs are HS/2 apart, as checkpoints of Hugging Face have them; the paper pairs neighbors,
  /// which is the same model with the rows of q and k in another order.
  /// qkv (B,T,(NH+2*NKV)*HS) as in attention_forward, NH = heads; angles (P,HS) F32, P >= T: row t
  /// is the token's cosines, then its sines
  void (*rope)(const Ctx&, Tensor qkv, Tensor angles, int64_t heads, bool back);

  // ---- causal attention (arXiv 1706.03762) ------------------------------------------------
  /// NH query heads come in NKV groups of r, which share a key and a value head (arXiv 2305.13245).
  /// A token's row of qkv holds group after group: r queries, k, v, of HS columns each. Per query
  /// head:
  ///   S[t,u] = (q_t . k_u) / sqrt(HS) for u <= t;  lse[t] = log sum_u exp S[t,u];
  ///   out[t] = sum_u exp(S[t,u] - lse[t]) v_u, in columns h HS + d.
  /// The sums over u fall into chunks of keys: see token_leaves.h. (A v_u that is Inf or NaN may
  /// reach tokens shortly before u, too: 0 times it is NaN.)
  /// Where ctx.packed says so, each document is a sequence of its own, with T = its L tokens, and
  /// lse holds (NH,L) of one behind that of the other.
  /// out (B,T,NH*HS); lse (B,NH,T); qkv (B,T,(NH+2*NKV)*HS)
  void (*attention_forward)(const Ctx&, Tensor out, Tensor lse, Tensor qkv);

  /// With P = exp(S - lse), D[t] = dout_t . out_t and dS = P (dout v^T - D):
  ///   dv_u = sum_t P[t,u] dout_t;  dk_u = sum_t dS[t,u] q_t / sqrt(HS), in folded leaves, in each
  ///   the group's heads ascending;  dq_t = sum_u dS[t,u] k_u / sqrt(HS), in chunks of keys.
  /// dqkv as qkv; dout as out (arXiv 2205.14135)
  void (*attention_backward)(const Ctx&, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                             Tensor lse);

  // ---- attention in pieces: some queries against a run of keys, where ranks share a sequence ----
  // A whole sequence is made of the same pieces in the same order. Absent results (no query sees a
  // key) have l = 0, and -0 for sums. Queries and keys are whole chunks of the sequence.

  /// Of the keys of a piece: m[t] = max_u S[t,u];  l[t] = sum_u exp(S[t,u] - m[t]);
  /// o[t] = sum_u exp(S[t,u] - m[t]) v_u.
  /// o (B,Tq,NH*HS), m, l (B,NH,Tq), all F32; q (B,Tq,NH*HS); kv (B,Tk,2*NKV*HS): k, v of a group
  void (*attention_piece_forward)(const Ctx&, Tensor o, Tensor m, Tensor l, Tensor q, Tensor kv,
                                  const AttentionPlace&);

  /// (o, m, l) becomes that of its own keys and of later ones: with M = max(m, m') it is
  /// exp(m - M) (o, l) + exp(m' - M) (o', l'), M. An absent one is skipped.   shapes as above
  void (*attention_merge)(const Ctx&, Tensor o, Tensor m, Tensor l, Tensor later_o, Tensor later_m,
                          Tensor later_l);

  /// out = o / l;  lse = m + log l.   out (B,T,NH*HS); lse (B,NH,T)
  void (*attention_finish)(const Ctx&, Tensor out, Tensor lse, Tensor o, Tensor m, Tensor l);

  /// What the pairs of a piece add to dq (of its queries) and to dk, dv (of its keys): parts of
  /// trees, which `add` joins. dq (B,Tq,NH*HS), dkv (B,Tk,2*NKV*HS), both F32; dout, out as q;
  /// lse (B,NH,Tq)
  void (*attention_piece_backward)(const Ctx&, Tensor dq, Tensor dkv, Tensor dout, Tensor q,
                                   Tensor kv, Tensor out, Tensor lse, const AttentionPlace&);

  /// to[r,g,to_column + i] = from[r,g,from_column + i] for i in [0, count), rounded to to's dtype:
  /// takes queries, or keys and values, out of qkv or puts them there. to (R,G,N); from (R,G,M)
  void (*copy_columns)(const Ctx&, Tensor to, int64_t to_column, Tensor from, int64_t from_column,
                       int64_t count);

  // ---- elementwise ------------------------------------------------------------------------
  /// out = residual + (product + bias).   out, residual, product (..,C); bias (C) or null
  void (*residual_forward)(const Ctx&, Tensor out, Tensor residual, Tensor product, Tensor bias);

  /// out = a + b.   any shape; out may be a or b
  void (*add)(const Ctx&, Tensor out, Tensor a, Tensor b);

  /// out = inp in the dtype of out, rounded to nearest even. To FP8: out = inp times the scale of
  /// out, saturated; its amax becomes max(amax, max |inp|), NaN if there is one.
  /// any shape; inp F32, BF16 or F16; out F32 or narrow, FP8 in both of its copies
  void (*cast)(const Ctx&, Tensor out, Tensor inp);

  /// x = factor x.   any shape
  void (*scale)(const Ctx&, Tensor x, float factor);

  // ---- loss -------------------------------------------------------------------------------
  /// Softmax cross-entropy over the first `vocab` columns; the rest is padding.
  ///   m = max_v x_v;  s = sum_v exp(x_v - m), in kLeaves leaves of V;
  ///   loss of a token = log s + m - x[target];  losses[b] = sum_t, as a vector, of those whose
  ///   target is not kIgnore;
  ///   dlogits[v] = (exp(x_v - m) / s - [v = target]) scale, 0 for ignored rows and padding.
  /// losses (B), not scaled; dlogits (B,T,V), null (no gradient) or the same tensor as logits;
  /// logits (B,T,V); targets (B,T) I32
  void (*cross_entropy)(const Ctx&, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                        int64_t vocab, float scale);

  /// cross_entropy in three parts, for ranks that each have V columns of the logits, `vocab` of
  /// them no padding, possibly none. Between the parts ranks exchange: after this one the maximum.
  /// max = max_v x_v, NaN if there is one, -infinity if vocab is 0.   max (B,T); logits (B,T,V)
  void (*softmax_max)(const Ctx&, Tensor max, Tensor logits, int64_t vocab);

  /// sum = sum_v exp(x_v - max), in ctx.leaves leaves of V: ranks join theirs as a tree;
  /// target = x[target], -0 where it is kIgnore or kElsewhere: ranks add theirs in any order.
  /// sum, target, max (B,T); logits (B,T,V); targets (B,T) I32, as columns of this rank
  void (*softmax_sum)(const Ctx&, Tensor sum, Tensor target, Tensor logits, Tensor max,
                      Tensor targets, int64_t vocab);

  /// losses and dlogits as in cross_entropy, from m = max, s = sum and x[target] = target of all
  /// ranks. Where the target is kElsewhere there is a loss, and no column here is the target.
  /// losses (B); dlogits (B,T,V), null or logits; max, sum, target (B,T); the rest as above
  void (*softmax_loss)(const Ctx&, Tensor losses, Tensor dlogits, Tensor logits, Tensor max,
                       Tensor sum, Tensor target, Tensor targets, int64_t vocab, float scale);

  // ---- norms ------------------------------------------------------------------------------
  /// Adds the squared norm of each row of x to that row's limbs: leaves of 16 neighbors of a
  /// row are summed in double and added as exact integers, so that any order gives the same
  /// bits. See kernels/limbs.h.   limbs (R,kLimbs) I64; x (R,N)
  void (*squared_norm)(const Ctx&, Tensor limbs, Tensor x);

  /// Adaptive gradient clipping (arXiv 2102.06171), row by row:
  /// g = g min(1, clip max(|w|, 1e-3) / max(|g|, 1e-6)), NaN if that is.
  /// grad (R,N); grad_limbs, weight_limbs (R,kLimbs) I64: their squared norms
  void (*adaptive_clip)(const Ctx&, Tensor grad, Tensor grad_limbs, Tensor weight_limbs,
                        float clip);

  // ---- optimizers: a tensor a call, or any part of it; but whole blocks of adamw8bit, and whole
  // tensors of adafactor. F32, and but for adamw8bit F64 in `ref`.
  /// v = momentum v + g;  w = w - lr (nesterov ? g + momentum v : v). velocity null: w - lr g.
  void (*sgd_update)(const Ctx&, Tensor param, Tensor velocity, Tensor grad, const SgdStep&);

  /// g += weight_decay w unless decoupled, else w -= lr weight_decay w;
  /// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
  /// w -= lr (m / correction1) / (sqrt(v / correction2) + eps).   (arXiv 1412.6980, 1711.05101)
  void (*adamw_update)(const Ctx&, Tensor param, Tensor m, Tensor v, Tensor grad, const AdamStep&);

  /// w -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay w);
  /// m = beta2 m + (1 - beta2) g.   (arXiv 2302.06675)
  void (*lion_update)(const Ctx&, Tensor param, Tensor m, Tensor grad, const LionStep&);

  /// Factored second moment of a matrix (arXiv 1804.04235): with q = g^2 + eps,
  /// row = beta2 row + (1 - beta2) mean_n q;  col = beta2 col + (1 - beta2) mean_r q;
  /// u = g / sqrt(row col / mean(row));  u /= max(1, rms(u) / clip);  w -= lr (u + decay w).
  /// A vector (col null) keeps row as its whole second moment: u = g / sqrt(row).
  /// param, grad (R,N) or (N); row (R), or (N) if col is null; col (N) or null
  void (*adafactor_update)(const Ctx&, Tensor param, Tensor row, Tensor col, Tensor grad,
                           const AdafactorStep&);

  /// adamw_update on states kept as 8-bit codes with one scale per kQuantBlock elements
  /// (arXiv 2110.02861; codes in kernels/quantize.h).
  /// param, grad (N); m_code, v_code (N) U8; m_scale, v_scale (ceil(N / kQuantBlock))
  void (*adamw8bit_update)(const Ctx&, Tensor param, Tensor m_code, Tensor m_scale, Tensor v_code,
                           Tensor v_scale, Tensor grad, const AdamStep&);
};

/// Plain loops over float or double, as the operands are: the specification.
const Kernels& ref_kernels();

/// Threads and SIMD; F32, BF16 and F16. CUDA's tables: kernels/cuda/backend.h.
const Kernels& cpu_kernels();

}  // namespace ladder
