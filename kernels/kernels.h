// The contents page of the ground floor: every operation with its formula and its shapes.
//
// Four tables keep the rules below: `ref` (plain loops over float and double: the specification),
// `cpu` (threads and SIMD), and two from kernels/cuda/, whose kernels run on a GPU or on the CPU.
//   - shapes come from the tensors; outputs come first, then inputs;
//   - activations, their gradients and the parameters have one dtype: F32 (F64 in `ref`), BF16 or
//     F16. Tokens and targets are I32;
//   - beside 16-bit activations, statistics (mean, rstd, lse, max, sum, target, losses) and
//     gradients of parameters are F32. Arithmetic is FP32, rounded once where a result is stored;
//   - beside 16-bit activations, either factor of a matmul or both may be FP8 (kernels/narrow.h):
//     E4M3 or E5M2 with a scale. Backward of a weight reads transposed copies, if there are any;
//   - an activation gradient is written; a parameter gradient is written or added (`Into`);
//   - a sum that ranks could share is a tree over leaves (kernels/tree.h); a sum of no terms is -0.
//     Over the tokens of a sequence a sum has the order of a matrix or that of a vector
//     (kernels/token_leaves.h);
//   - a sequence is a row, or a document (Ctx::documents). route_forward, attention_piece_forward
//     and attention_cached refuse documents;
//   - no result depends on ctx.threads; in `ref` and `cpu` none depends on the micro-batches. Their
//     sums have the order of docs/same_bits.md, those of CUDA that of docs/cuda.md;
//   - the line above a pointer says the shapes and dtypes of its operands. operations.inc explains
//     the signs: w(N,K), b?(C) may be null, lse(B,NH,T):wide, leaves[1..]. What does not fit throws
//     CheckError.
//
// Letters: B sequences, T tokens of a sequence, C channels, NH heads, HS = C / NH channels of a
// head, NKV heads of keys and values, Tq queries and Tk keys of a piece, V vocabulary (padded), P
// positions, F hidden channels of an MLP, K and N the inner and outer extents of a matrix product,
// R rows, E experts, k experts that a token takes, M rows of experts. Where an operation has no
// product and no experts, N and M are any extents.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder {

/// What a call does to the buffer of a parameter gradient. With Add, it first finishes its own sum,
/// then adds it once: buffer = buffer + sum.
enum class Into : uint8_t { Write, Add };

/// A target that is not learned: it has no loss and no gradient.
constexpr int32_t kIgnore = -1;

/// A token or target whose row another rank has (chapter 11); a choice without a row here (22).
constexpr int32_t kElsewhere = -2;

/// Limbs of a squared norm: see Kernels::squared_norm.
constexpr int64_t kLimbs = 12;

/// Elements of one quantized block of 8-bit optimizer state. Shards start at multiples of it.
constexpr int64_t kQuantBlock = 64;

/// One step of SGD (chapter 01).
struct SgdStep {
  float lr;
  float momentum;
  bool nesterov;
};

/// One step of Adam, AdamW (chapter 02) or 8-bit AdamW (chapter 32).
struct AdamStep {
  float lr;
  float beta1, beta2;
  float eps;
  float weight_decay;  ///< 0 for biases and layer norms
  bool decoupled;      ///< AdamW: decay the weight; else Adam with L2: add decay to the gradient
  float correction1;   ///< 1 - beta1^t in step t, from 1 on
  float correction2;   ///< 1 - beta2^t
};

/// One step of Lion (chapter 32).
struct LionStep {
  float lr;
  float beta1, beta2;
  float weight_decay;
};

/// One step of Adafactor (chapter 32).
struct AdafactorStep {
  float lr;
  float beta2;  ///< for this step: 1 - t^-0.8
  float eps;    ///< added to squared gradients: 1e-30
  float clip;   ///< largest root mean square of an update: 1
  float weight_decay;
};

/// Where a piece of attention lies in its sequence. Its queries are two runs of tokens, as in
/// zig-zag order (token_leaves.h): rows [0, Tq / 2) are one run, the other rows are the second.
struct AttentionPositions {
  int64_t T = 0;                     ///< tokens of the whole sequence
  std::array<int64_t, 2> queries{};  ///< the first token of each run
  int64_t keys = 0;                  ///< the first key
};

/// The queries of attention_cached are tokens first, first + 1, ... of a sequence of T tokens, of
/// which the later ones need not exist yet.
struct CachedPlace {
  int64_t T = 0;
  int64_t first = 0;
};

/// How a router scores experts, and how it weighs those that a token takes (chapter 21).
struct RouteRule {
  bool sigmoid;      ///< scores are logistic functions (arXiv 2412.19437); else softmax
  bool renormalize;  ///< a token's weights are divided by their sum (arXiv 2401.04088)
};

/// Which rows belong to which expert. expert_rows fills this, and the operations after it read it.
/// Rows are sorted by expert, then by sequence, then by token. On a device, `offsets` lies where
/// the host can read it, too.
struct ExpertRows {
  Tensor offsets;  ///< (E+1) I32: expert e has rows [offsets[e], offsets[e+1])
  Tensor row;      ///< (B,T,k) I32: the row of a token at its j-th expert, or kNoRow
  Tensor from;     ///< (M) I32: which (b T + t) k + j lies in a row
};

/// The token has no row: its expert drops it, or is on another rank.
constexpr int32_t kNoRow = -1;

/// A table of kernels: one pointer for each operation. `ref`, `cpu` and `cuda` each fill one, by
/// the names in kernels/operations.inc.
struct Kernels {
  const char* name;
  int64_t scratch_bytes;        ///< of Ctx::scratch for each thread; a device counts as one thread
  int64_t max_head;             ///< most channels of a head that attention takes
  bool transposes_fp8 = false;  ///< whether `cast` writes a transposed copy of FP8 codes, too

  // ---- embedding -------------------------------------------------------------------------
  /// out[b,t,:] = wte[tokens[b,t],:] + wpe[t,:]. Without wpe: the token's row alone. If the token
  /// is kElsewhere: -0. The rank with its row adds the position, too; then ranks are summed.
  /// out(B,T,C) tokens(B,T):I32 wte(V,C) wpe?(P>=T,C)
  void (*embed_forward)(const Ctx&, Tensor out, Tensor tokens, Tensor wte, Tensor wpe);

  /// dwte[v,:] = sum of dout[b,t,:] where tokens[b,t] = v;  dwpe[t,:] = sum_b dout[b,t,:].
  /// dwte is summed as in matmul_backward_weight. Rows of tokens that do not occur become -0, or
  /// keep their value. A token that is kElsewhere adds to dwpe only.
  /// dwte(V,C):wide dwpe?(P>=T,C):wide dout(B,T,C) tokens(B,T):I32
  void (*embed_backward)(const Ctx&, Tensor dwte, Tensor dwpe, Tensor dout, Tensor tokens, Into);

  // ---- layer norm (arXiv 1607.06450), RMSNorm (arXiv 1910.07467) --------------------------
  /// mean = sum_c inp / C;  rstd = 1 / sqrt(sum_c (inp - mean)^2 / C + 1e-5);
  /// out = (inp - mean) rstd w + b. Without b: out = (inp - mean) rstd w.
  /// RMSNorm has no mean: in all three operations, 0 stands in its place.
  /// out(B,T,C) mean?(B,T):wide rstd(B,T):wide inp(B,T,C) w(C) b?(C)
  void (*norm_forward)(const Ctx&, Tensor out, Tensor mean, Tensor rstd, Tensor inp, Tensor w,
                       Tensor b);

  /// With xhat = (inp - mean) rstd and g = dout w:
  /// dinp = rstd (g - sum_c g / C - xhat sum_c (g xhat) / C); without mean
  /// dinp = rstd (g - xhat sum_c (g xhat) / C).
  /// dinp(B,T,C) dout(B,T,C) inp(B,T,C) w(C) mean?(B,T):wide rstd(B,T):wide
  void (*norm_backward_input)(const Ctx&, Tensor dinp, Tensor dout, Tensor inp, Tensor w,
                              Tensor mean, Tensor rstd);

  /// dw = sum_bt dout xhat;  db = sum_bt dout.
  /// First over the tokens of a sequence, as a vector, then over sequences.
  /// dw(C):wide db?(C):wide dout(B,T,C) inp(B,T,C) mean?(B,T):wide rstd(B,T):wide
  void (*norm_backward_weight)(const Ctx&, Tensor dw, Tensor db, Tensor dout, Tensor inp,
                               Tensor mean, Tensor rstd, Into);

  // ---- linear layer: out = inp W^T + bias, W as in torch.nn.Linear ------------------------
  /// out[r,n] = (sum_k inp[r,k] w[n,k]) + bias[n]; the sum has `leaves` leaves of K.
  /// out(R..,N) inp(R..,K):factor w(N,K):factor bias?(N) leaves[1..]
  void (*matmul_forward)(const Ctx&, Tensor out, Tensor inp, Tensor w, Tensor bias, int leaves);

  /// dinp[r,k] = sum_n dout[r,n] w[n,k]; the sum has `leaves` leaves of N.
  /// dinp(R..,K) dout(R..,N):factor w(N,K):factor leaves[1..]
  void (*matmul_backward_input)(const Ctx&, Tensor dinp, Tensor dout, Tensor w, int leaves);

  /// dw[n,k] = sum_bt dout[b,t,n] inp[b,t,k]: first over the tokens of a sequence, as a matrix,
  /// then over sequences.
  /// dw(N,K):wide dout(B,T,N):factor inp(B,T,K):factor
  void (*matmul_backward_weight)(const Ctx&, Tensor dw, Tensor dout, Tensor inp, Into);

  /// db[n] = sum_bt dout[b,t,n], summed as in norm_backward_weight.
  /// db(N):wide dout(B,T,N)
  void (*bias_backward)(const Ctx&, Tensor db, Tensor dout, Into);

  // ---- GELU, tanh form (arXiv 1606.08415) -------------------------------------------------
  /// out = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), x = inp.
  /// out(..) inp(..)
  void (*gelu_forward)(const Ctx&, Tensor out, Tensor inp);

  /// dinp = dout gelu'(inp). dinp may be dout.
  /// dinp(..) dout(..) inp(..)
  void (*gelu_backward)(const Ctx&, Tensor dinp, Tensor dout, Tensor inp);

  /// gelu_forward and a cast in one: codes = cast of out. out is then undefined.
  /// codes(..):FP8 out(..) inp(..)
  void (*gelu_forward_codes)(const Ctx&, Tensor codes, Tensor out, Tensor inp);

  /// gelu_backward and a cast in one: codes = cast of dinp.
  /// codes(..):FP8 dinp(..) dout(..) inp(..)
  void (*gelu_backward_codes)(const Ctx&, Tensor codes, Tensor dinp, Tensor dout, Tensor inp);

  // ---- SwiGLU (arXiv 2002.05202) ----------------------------------------------------------
  /// out[f] = silu(g) u,  silu(x) = x s(x),  s(x) = 1 / (1 + exp(-x)),  g = inp[2f], u = inp[2f+1].
  /// The gate g and the value u of a channel are neighbors, so a cut of F is a cut of 2F. A gate
  /// below -88 counts as -88; there |silu| is less than 1e-36.
  /// out(..,F) inp(..,2*F)
  void (*swiglu_forward)(const Ctx&, Tensor out, Tensor inp);

  /// dinp[2f] = dout u s(g) (1 + g (1 - s(g)));  dinp[2f+1] = dout silu(g).
  /// dinp(..,2*F) dout(..,F) inp(..,2*F)
  void (*swiglu_backward)(const Ctx&, Tensor dinp, Tensor dout, Tensor inp);

  // ---- experts (arXiv 2006.16668, 2101.03961): E MLPs, of which each token takes k ------------
  /// scores = softmax of a token's logits, or the logistic function of each logit. A token takes
  /// the k experts with the largest scores + bias. Ties go to the lower expert; NaN comes before
  /// all numbers. expert[b,t,:] ascends. The bias affects the choice only (arXiv 2408.15664).
  ///   weight[j] = s_j = scores[expert[j]]; renormalized: s_j / sum_i s_i;
  ///   load[b,e] = how many tokens of a sequence take expert e;
  ///   losses[0,b] = sum_e f_e P_e, the balance loss (arXiv 2101.03961), per sequence as in
  ///   arXiv 2412.19437: f_e = load[b,e] E / (k T);  P_e = sum_t p_e[t] / T, where p_e[t] is the
  ///   score divided by the sum of the token's scores. The loss is 1 if all loads are equal;
  ///   losses[1,b] = sum_t (log sum_e exp logits[b,t,e])^2 / T, the z-loss (arXiv 2202.08906).
  /// Sums over t have the order of a vector. Every tensor that is not I32 is F32, also beside
  /// narrow activations.
  /// expert(B,T,k>=1):I32 weight(B,T,k):wide scores(B,T,E>=k):wide load(B,E):I32 losses(2,B):wide
  /// logits(B,T,E):wide bias?(E):wide
  void (*route_forward)(const Ctx&, Tensor expert, Tensor weight, Tensor scores, Tensor load,
                        Tensor losses, Tensor logits, Tensor bias, const RouteRule&);

  /// The gradient of the logits. It comes through the weights, and from the loss
  /// balance * losses[0,b] + z * losses[1,b], where load is a constant.
  /// dlogits(B,T,E>=k):wide dweight(B,T,k):wide expert(B,T,k>=1):I32 scores(B,T,E):wide
  /// load(B,E):I32 logits(B,T,E):wide
  void (*route_backward)(const Ctx&, Tensor dlogits, Tensor dweight, Tensor expert, Tensor scores,
                         Tensor load, Tensor logits, const RouteRule&, float balance, float z);

  /// Fills the rows of experts. If capacity is not 0, an expert takes the first `capacity` tokens
  /// of each sequence that choose it, and drops the others. A choice that is kElsewhere gets no
  /// row. `from` after offsets[E] is not written.
  /// rows expert(B,T,k):I32 capacity[0..]
  void (*expert_rows)(const Ctx&, const ExpertRows&, Tensor expert, int64_t capacity);

  /// out[r] = inp[b,t] of the token in row r.
  /// out(M,C) inp(B,T,C) rows
  void (*gather_rows)(const Ctx&, Tensor out, Tensor inp, const ExpertRows&);

  // A product for each expert over its rows. Its leaves are those of the matmul of the same name.
  // Rows after offsets[E] are neither read nor written. On a device the host waits for offsets.

  /// out[r,n] = sum_k inp[r,k] w[e,n,k]; row r is expert e's.
  /// out(M,N) inp(M,K) w(E,N,K) rows leaves[1..]
  void (*grouped_matmul_forward)(const Ctx&, Tensor out, Tensor inp, Tensor w, const ExpertRows&,
                                 int leaves);

  /// dinp[r,k] = sum_n dout[r,n] w[e,n,k].
  /// dinp(M,K) dout(M,N) w(E,N,K) rows leaves[1..]
  void (*grouped_matmul_backward_input)(const Ctx&, Tensor dinp, Tensor dout, Tensor w,
                                        const ExpertRows&, int leaves);

  /// dw[e,n,k] = sum_r dout[r,n] inp[r,k] over the rows of e. It is the sum of
  /// matmul_backward_weight over sequences and tokens, without the tokens that have no row of e.
  /// dw(E,N,K):wide dout(M,N) inp(M,K) rows
  void (*grouped_matmul_backward_weight)(const Ctx&, Tensor dw, Tensor dout, Tensor inp,
                                         const ExpertRows&, Into);

  /// out[b,t] = sum_j weight[b,t,j] y[row[b,t,j]]. The sum is a tree over the E experts; experts
  /// without a row are absent leaves. So 2^i aligned experts, numbered from the first of them, give
  /// a subtree, and `add` joins subtrees. Without weight: the gradient of gather_rows.
  /// out(B,T,C):either y(M,C) rows expert(B,T,k):I32 weight?(B,T,k):wide
  void (*unpermute_forward)(const Ctx&, Tensor out, Tensor y, const ExpertRows&, Tensor expert,
                            Tensor weight);

  /// dy[row[b,t,j]] = weight[b,t,j] dout[b,t];  dweight[b,t,j] = sum_c dout[b,t,c] y[row,c], 0
  /// where there is no row.
  /// dy(M,C) dweight(B,T,k):wide dout(B,T,C) y(M,C) rows weight(B,T,k):wide
  void (*unpermute_backward)(const Ctx&, Tensor dy, Tensor dweight, Tensor dout, Tensor y,
                             const ExpertRows&, Tensor weight);

  // ---- rotary positions (RoPE, arXiv 2104.09864) ------------------------------------------
  /// Turns each query and each key of qkv in place by the angles of its token; `back` turns by the
  /// negative angles. With c = angles[t,i], s = angles[t,HS/2+i], i < HS/2, (x_i, x_{i+HS/2})
  /// becomes
  /// (x_i c - x_{i+HS/2} s, x_{i+HS/2} c + x_i s); back: with -s. Turning back is the gradient.
  /// Pairs are HS/2 apart, as in checkpoints of Hugging Face. The paper pairs neighbors, which is
  /// the same model with the rows of q and k in another order.
  /// qkv as in attention_forward. Row t of angles holds the token's cosines, then its sines.
  /// qkv(B,T,(NH+2*NKV)*HS) angles(P>=T,HS):F32 NH[1..] 2|HS NKV|NH
  void (*rope)(const Ctx&, Tensor qkv, Tensor angles, int64_t NH, bool back);

  // ---- causal attention (arXiv 1706.03762) ------------------------------------------------
  /// NH query heads form NKV groups of r; a group shares a key and a value head (arXiv 2305.13245).
  /// A token's row of qkv holds group after group: r queries, k, v, of HS columns each. Per query
  /// head:
  ///   S[t,u] = (q_t . k_u) / sqrt(HS) for u <= t;  lse[t] = log sum_u exp S[t,u];
  ///   out[t] = sum_u exp(S[t,u] - lse[t]) v_u, in columns [h HS, (h + 1) HS) for head h.
  /// The sums over u fall into chunks of keys: see token_leaves.h. (A v_u that is Inf or NaN may
  /// reach tokens shortly before u, too: 0 times it is NaN.) If a document of L tokens begins at
  /// row i of all B T, its lse (NH,L) begins at element NH i. Padding has 0 in lse and in dqkv.
  /// out(B,T,NH*HS) lse(B,NH,T):wide qkv(B,T,(NH+2*NKV)*HS) NKV|NH
  void (*attention_forward)(const Ctx&, Tensor out, Tensor lse, Tensor qkv);

  /// With P = exp(S - lse), D[t] = dout_t . out_t and dS = P (dout v^T - D):
  ///   dv_u = sum_t P[t,u] dout_t;  dk_u = sum_t dS[t,u] q_t / sqrt(HS): over folded leaves, and in
  ///   a leaf over the group's heads, ascending;
  ///   dq_t = sum_u dS[t,u] k_u / sqrt(HS): over chunks of keys.   (arXiv 2205.14135)
  /// dqkv(B,T,(NH+2*NKV)*HS) dout(B,T,NH*HS) qkv(B,T,(NH+2*NKV)*HS) out(B,T,NH*HS) lse(B,NH,T):wide
  /// NKV|NH
  void (*attention_backward)(const Ctx&, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                             Tensor lse);

  // ---- attention in pieces: some queries and a run of keys, where ranks share a sequence -------
  // A whole sequence consists of the same pieces in the same order. If no query sees a key, the
  // result is absent: l = 0, and sums are -0. Queries and keys are whole chunks of the sequence.

  /// For the keys of a piece: m[t] = max_u S[t,u];  l[t] = sum_u exp(S[t,u] - m[t]);
  /// o[t] = sum_u exp(S[t,u] - m[t]) v_u.
  /// kv holds k, v of a group, group after group.
  /// o(B,Tq,NH*HS):wide m(B,NH,Tq):wide l(B,NH,Tq):wide q(B,Tq,NH*HS) kv(B,Tk,2*NKV*HS) NKV|NH
  void (*attention_piece_forward)(const Ctx&, Tensor o, Tensor m, Tensor l, Tensor q, Tensor kv,
                                  const AttentionPositions&);

  /// Adds later keys (o', m', l') to those of (o, m, l). With M = max(m, m'):
  /// (o, l) = exp(m - M) (o, l) + exp(m' - M) (o', l'); m = M. Absent ones are skipped.
  /// o(B,Tq,NH*HS):wide m(B,NH,Tq):wide l(B,NH,Tq):wide later_o(B,Tq,NH*HS):wide
  /// later_m(B,NH,Tq):wide later_l(B,NH,Tq):wide
  void (*attention_merge)(const Ctx&, Tensor o, Tensor m, Tensor l, Tensor later_o, Tensor later_m,
                          Tensor later_l);

  /// out = o / l;  lse = m + log l.
  /// out(B,Tq,NH*HS) lse(B,NH,Tq):wide o(B,Tq,NH*HS):wide m(B,NH,Tq):wide l(B,NH,Tq):wide
  void (*attention_finish)(const Ctx&, Tensor out, Tensor lse, Tensor o, Tensor m, Tensor l);

  /// What the pairs of a piece add to dq of its queries and to dk and dv of its keys. These are
  /// parts of trees, which `add` joins.
  /// dq(B,Tq,NH*HS):wide dkv(B,Tk,2*NKV*HS):wide dout(B,Tq,NH*HS) q(B,Tq,NH*HS) kv(B,Tk,2*NKV*HS)
  /// out(B,Tq,NH*HS) lse(B,NH,Tq):wide NKV|NH
  void (*attention_piece_backward)(const Ctx&, Tensor dq, Tensor dkv, Tensor dout, Tensor q,
                                   Tensor kv, Tensor out, Tensor lse, const AttentionPositions&);

  // ---- attention of a text that still grows (chapter 31) ----------------------------------
  /// The rows of `out` that attention_forward computes for tokens first, first + 1, ... of a
  /// sequence of T tokens. The cache holds keys and values of all tokens up to them, these
  /// included, as kv of a piece; nothing behind them is read. Of qkv the queries are read. T is the
  /// length from which chunks of keys come: chunks that no token has reached are absent. On a GPU
  /// there are no chunks.
  /// out(Tq,NH*HS) qkv(Tq,(NH+2*NKV)*HS) cache(P,2*NKV*HS) NH[1..] first[0..] T[1..] NKV|NH
  void (*attention_cached)(const Ctx&, Tensor out, Tensor qkv, Tensor cache, int64_t heads,
                           const CachedPlace&);

  /// to[r,g,to_column + i] = from[r,g,from_column + i] for i in [0, count), rounded to to's dtype.
  /// A row has G groups, of N columns in `to` and of M columns in `from`. So queries, or keys and
  /// values, are taken out of qkv, or put there.
  /// to(R,G,N):float to_column[0..N] from(R,G,M):float from_column[0..M] count[0..]
  void (*copy_columns)(const Ctx&, Tensor to, int64_t to_column, Tensor from, int64_t from_column,
                       int64_t count);

  // ---- elementwise ------------------------------------------------------------------------
  /// out = residual + (product + bias).
  /// out(..,C) residual(..,C) product(..,C) bias?(C)
  void (*residual_forward)(const Ctx&, Tensor out, Tensor residual, Tensor product, Tensor bias);

  /// out = a + b. out may be a or b.
  /// out(..) a(..) b(..)
  void (*add)(const Ctx&, Tensor out, Tensor a, Tensor b);

  /// out = inp in the dtype of out, rounded to nearest even. To FP8: out = inp times the scale of
  /// out, saturated; its amax becomes max(amax, max |inp|), NaN if there is one.
  /// inp is F32, BF16 or F16. FP8 is written in both of its copies.
  /// out(..):any inp(..)
  void (*cast)(const Ctx&, Tensor out, Tensor inp);

  /// x = factor x.
  /// x(..)
  void (*scale)(const Ctx&, Tensor x, float factor);

  // ---- loss -------------------------------------------------------------------------------
  /// Softmax cross-entropy over the first `vocab` columns; the other columns are padding.
  ///   m = max_v x_v;  s = sum_v exp(x_v - m), in kLeaves leaves of V;
  ///   loss of a token = log s + m - x[target];  losses[b] = sum_t of these, without tokens whose
  ///   target is kIgnore, in the order of a vector;
  ///   dlogits[v] = (exp(x_v - m) / s - [v = target]) scale, where [v = target] is 1 or 0; 0 in
  ///   ignored rows and in padding.
  /// losses are not scaled; D = B, or the turns of Ctx::documents, empty ones included. dlogits may
  /// be null (no gradient), or the same tensor as logits.
  /// losses(D):wide dlogits?(B,T,V) logits(B,T,V) targets(B,T):I32 vocab[1..V]
  void (*cross_entropy)(const Ctx&, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                        int64_t vocab, float scale);

  /// cross_entropy in three parts, for ranks that have V columns of the logits each. The first
  /// `vocab` of them, perhaps none, are no padding. Ranks exchange after parts one and two.
  /// max = max_v x_v; NaN if an x_v is; -infinity if vocab is 0.
  /// max(B,T):wide logits(B,T,V) vocab[0..V]
  void (*softmax_max)(const Ctx&, Tensor max, Tensor logits, int64_t vocab);

  /// sum = sum_v exp(x_v - max), in ctx.leaves leaves of V; ranks join their sums as a tree.
  /// target = x[target], or -0 if it is kIgnore or kElsewhere; ranks add these in any order.
  /// targets are columns of this rank.
  /// sum(B,T):wide target(B,T):wide logits(B,T,V) max(B,T):wide targets(B,T):I32 vocab[0..V]
  void (*softmax_sum)(const Ctx&, Tensor sum, Tensor target, Tensor logits, Tensor max,
                      Tensor targets, int64_t vocab);

  /// losses and dlogits of cross_entropy, from m = max, s = sum and x[target] = target over all
  /// ranks. If the target is kElsewhere there is a loss, but no column here is the target.
  /// dlogits may be null, or logits.
  /// losses(D):wide dlogits?(B,T,V) logits(B,T,V) max(B,T):wide sum(B,T):wide target(B,T):wide
  /// targets(B,T):I32 vocab[0..V]
  void (*softmax_loss)(const Ctx&, Tensor losses, Tensor dlogits, Tensor logits, Tensor max,
                       Tensor sum, Tensor target, Tensor targets, int64_t vocab, float scale);

  // ---- norms ------------------------------------------------------------------------------
  /// Adds the squared norm of each row of x to that row's limbs. Leaves of 16 neighbors of a row
  /// are summed in double and added as exact integers, so any order gives the same bits: see
  /// kernels/limbs.h.
  /// limbs(R,kLimbs):I64 x(R,N):wide
  void (*squared_norm)(const Ctx&, Tensor limbs, Tensor x);

  /// Adaptive gradient clipping (arXiv 2102.06171), row by row:
  /// g = g min(1, clip max(|w|, 1e-3) / max(|g|, 1e-6)); NaN if that factor is NaN.
  /// The limbs are those of the squared norms of g and w.
  /// grad(R,N):wide grad_limbs(R,kLimbs):I64 weight_limbs(R,kLimbs):I64
  void (*adaptive_clip)(const Ctx&, Tensor grad, Tensor grad_limbs, Tensor weight_limbs,
                        float clip);

  // ---- optimizers -------------------------------------------------------------------------
  // A call takes a tensor or any part of one. But adamw8bit takes whole blocks, adafactor whole
  // tensors. All are F32; `ref` also takes F64, except in adamw8bit.
  /// v = momentum v + g;  w = w - lr (nesterov ? g + momentum v : v). No velocity: w - lr g.
  /// param(..):wide velocity?(..):wide grad(..):wide
  void (*sgd_update)(const Ctx&, Tensor param, Tensor velocity, Tensor grad, const SgdStep&);

  /// Not decoupled: g += weight_decay w. Decoupled: w -= lr weight_decay w. Then:
  /// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
  /// w -= lr (m / correction1) / (sqrt(v / correction2) + eps).   (arXiv 1412.6980, 1711.05101)
  /// param(..):wide m(..):wide v(..):wide grad(..):wide
  void (*adamw_update)(const Ctx&, Tensor param, Tensor m, Tensor v, Tensor grad, const AdamStep&);

  /// w -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay w);
  /// m = beta2 m + (1 - beta2) g.   (arXiv 2302.06675)
  /// param(..):wide m(..):wide grad(..):wide
  void (*lion_update)(const Ctx&, Tensor param, Tensor m, Tensor grad, const LionStep&);

  /// Factored second moment of a matrix (arXiv 1804.04235). With q = g^2 + eps:
  /// row = beta2 row + (1 - beta2) mean_n q;  col = beta2 col + (1 - beta2) mean_r q;
  /// u = g / sqrt(row col / mean(row));  u /= max(1, rms(u) / clip);  w -= lr (u + decay w).
  /// A vector has no col and keeps its whole second moment in row: u = g / sqrt(row).
  /// M = R beside col. Without col, param is a vector, and M = N.
  /// param(R..,N):wide row(M):wide col?(N):wide grad(R..,N):wide
  void (*adafactor_update)(const Ctx&, Tensor param, Tensor row, Tensor col, Tensor grad,
                           const AdafactorStep&);

  /// adamw_update with states that are kept as 8-bit codes, one scale per kQuantBlock elements
  /// (arXiv 2110.02861; codes in kernels/quantize.h).
  /// Q = ceil(N / kQuantBlock).
  /// param(N..):F32 m_code(N):U8 m_scale(Q):F32 v_code(N):U8 v_scale(Q):F32 grad(N..):F32
  void (*adamw8bit_update)(const Ctx&, Tensor param, Tensor m_code, Tensor m_scale, Tensor v_code,
                           Tensor v_scale, Tensor grad, const AdamStep&);
};

/// Plain loops over float or double, whichever the operands are: the specification.
const Kernels& ref_kernels();

/// Threads and SIMD; F32, BF16 and F16. kernels/cuda/backend.h has CUDA's tables.
const Kernels& cpu_kernels();

}  // namespace ladder
