// What forward keeps for backward, and the gradients that flow back: allocation and formula.
//
// In a shape, s is the number of ranks that share the tokens of a sequence: 1, but for sequence
// parallelism (chapter 11). There the stream, norms and residuals have T/s tokens on each rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "common/model/parts.h"
#include "kernels/arena.h"

namespace ladder {

/// Kept by one block: in GPT-2 16 C + NH + 4 floats a token.
struct BlockActs {
  NormSaved stat1;
  Tensor norm1;  ///< (B,T/s,C)
  AttnSaved attn;
  Tensor mid;  ///< (B,T/s,C), the residual stream between the two branches
  NormSaved stat2;
  Tensor norm2;  ///< (B,T/s,C)
  MlpSaved mlp;
  Tensor out;  ///< (B,T/s,C), the residual stream after the block
};

/// Kept by the whole model.
struct Activations {
  Tensor embed;  ///< (B,T/s,C), the residual stream before the first block
  std::vector<BlockActs> blocks;
  NormSaved stat;
  Tensor norm;     ///< (B,T/s,C), what the head reads
  Tensor logits;   ///< (B,T,Vp), or of fewer sequences; their gradient once backward starts
  Tensor product;  ///< (B,T/s,C), Workspace: attn's or mlp's, until the residual

  /// The residual stream that block l reads; l = L: what the last norm reads.
  Tensor stream(int64_t l) const { return l == 0 ? embed : blocks[static_cast<size_t>(l) - 1].out; }
  /// The same buffers for a batch of `count` sequences.
  Activations first(int64_t count) const;
};

/// Gradients of activations, one block at a time: all Workspace.
struct ActGrads {
  Tensor stream;  ///< (B,T/s,C), of the residual stream
  Tensor branch;  ///< (B,T/s,C), of what attn, mlp or the head read
  Tensor norm;    ///< (B,T/s,C), of what a norm read
  AttnGrads attn;
  MlpGrads mlp;

  ActGrads first(int64_t count) const;
};

/// Which activations of a block have memory of their own. What has none lies where those of other
/// blocks lie: backward must compute it again, or not need it.
struct ActivationPlan {
  Dtype dtype = Dtype::F32;  ///< of activations; statistics are F32 beside narrow ones
  int64_t sets = 0;          ///< block l uses set l % sets of all tensors; 0: a set for each block
  bool own_norm = true;      ///< else one norm1 and one norm2 (B,T,C) for all sets
  bool own_att = true;       ///< else one att (B,T,C) with its lse
  bool own_act = true;       ///< else one act (B,T,F)
  bool own_input = true;     ///< else the inputs of segments lie in two buffers, in turn
  bool own_output = true;    ///< else what the last block writes lies in one of them, too
  bool head = true;          ///< whether the last norm and logits follow
  int64_t logits = 0;        ///< sequences whose logits exist at a time; 0: all
  int64_t slots = 1;         ///< micro-batches in flight: each has what is its own
  bool own_sets = true;      ///< else the sets serve all slots
  int64_t tp = 1;            ///< ranks that share heads, columns of the MLP and the vocabulary
  int64_t sequence_ranks = 1;  ///< s: ranks that share the tokens of a sequence

  int64_t set_count(int64_t layers) const { return sets == 0 ? layers : sets; }
  int64_t logits_of(int64_t batch) const { return logits == 0 ? batch : std::min(logits, batch); }
  /// T/s, of a sequence of T tokens.
  int64_t own_tokens(int64_t T) const { return div_exact(T, sequence_ranks); }
};

/// Widths of what lies inside the parts of a block that tp ranks share, on one of them.
struct OwnWidths {
  OwnWidths(const GptConfig& config, int64_t tp);

  int64_t qkv, att;
  int64_t fc, act;
  int64_t dact;  ///< 0: the gradient of act becomes that of fc in place
};

/// dact where it has memory of its own: with SwiGLU.
MlpGrads mlp_grads(const GptConfig& config, Tensor dfc, Tensor dact);

/// @param plan dtype F64: for gradient checks with `ref`
Activations alloc_activations(Arena& arena, const GptConfig& config, int64_t batch,
                              const ActivationPlan& plan = {});
/// The same for plan.slots micro-batches that are in flight together, in a part of the model with
/// config.layers blocks. What is not kept for backward, and logits and product, is one for all.
std::vector<Activations> alloc_slots(Arena& arena, const GptConfig& config, int64_t batch,
                                     const ActivationPlan& plan);
ActGrads alloc_act_grads(Arena& arena, const GptConfig& config, int64_t batch,
                         const ActivationPlan& plan = {});

/// Bytes that alloc_activations counts as Activation. Of GPT-2, with everything kept in F32:
/// 4 B T (L (16 C + NH + 4) + 2 C + 2 + Vp). With tp ranks 12 C, NH and Vp of these are divided by
/// tp, and with s sequence ranks what is left is divided by s. In general 16 C is 4 C outside of
/// the parts, and C + qkv_rows() + fc_rows() + inner() inside; RMSNorm has 2 statistics, not 4.
int64_t activation_bytes(const GptConfig& config, int64_t batch, const ActivationPlan& plan = {});

/// Bytes that both count as Workspace: product, and of stream, branch and norm 3 C; and inside the
/// parts the gradients of qkv, att and fc, and with SwiGLU of act. Of GPT-2 4 B T (12 C) in F32.
/// With ranks 4 C of these are divided by s, 8 C by tp. And angle_bytes().
int64_t act_grad_bytes(const GptConfig& config, int64_t batch, const ActivationPlan& plan = {});

/// Workspace of alloc_activations for rotary positions: 4 T HS, whatever the batch.
int64_t angle_bytes(const GptConfig& config);

}  // namespace ladder
