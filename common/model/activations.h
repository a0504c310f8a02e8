// Memory for what forward keeps for backward and for the gradients that flow back: its allocation,
// and formulas for its bytes.
//
// In a shape, s is the number of ranks that split the tokens of a sequence. It is 1 without
// sequence parallelism (chapter 11). With it, the residual stream and the norms have T/s tokens on
// each rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/model/config.h"
#include "common/model/parts.h"
#include "kernels/arena.h"

namespace ladder {

/// What one block keeps: 16 C + NH + 4 floats per token in GPT-2.
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

/// What the whole model keeps.
struct Activations {
  Tensor embed;  ///< (B,T/s,C), the residual stream before the first block
  std::vector<BlockActs> blocks;
  NormSaved stat;
  Tensor norm;     ///< (B,T/s,C), what the head reads
  Tensor logits;   ///< (B,T,Vp), or of fewer sequences; backward turns them into their gradient
  Tensor product;  ///< (B,T/s,C), Workspace: of attn or mlp, until the residual adds it

  /// The residual stream that block l reads. l = L: the stream that the last norm reads.
  Tensor stream(int64_t l) const { return l == 0 ? embed : blocks[static_cast<size_t>(l) - 1].out; }
  /// The same buffers, for a batch of `count` sequences.
  Activations first(int64_t count) const;
};

/// Gradients of activations. All blocks use the same memory, one after the other: Workspace.
struct ActGrads {
  Tensor stream;  ///< (B,T/s,C), of the residual stream
  Tensor branch;  ///< (B,T/s,C), of what attn, mlp or the head read
  Tensor norm;    ///< (B,T/s,C), of what a norm read; with experts also of what they read
  AttnGrads attn;
  MlpGrads mlp;

  ActGrads first(int64_t count) const;
};

/// Which activations of a block have memory of their own. The others share the memory of other
/// blocks, so backward must compute them again or do without them.
struct ActivationPlan {
  Dtype dtype = Dtype::F32;  ///< of activations; if it is narrow, statistics are F32
  int64_t sets = 0;          ///< block l uses set l % sets of all tensors; 0: each block has a set
  bool own_norm = true;      ///< else all sets share one norm1 and one norm2 (B,T,C)
  bool own_att = true;       ///< else all sets share one att (B,T,C) with its lse
  bool own_act = true;       ///< else all sets share one act (B,T,F)
  bool own_input = true;     ///< else two buffers hold the inputs of segments, in turn
  bool own_output = true;    ///< else one of these two also holds the output of the last block
  bool head = true;          ///< whether the last norm and logits follow
  int64_t logits = 0;        ///< for how many sequences logits exist at a time; 0: all
  int64_t slots = 1;         ///< micro-batches in flight; each has its own tensors
  bool own_sets = true;      ///< else all slots share the sets
  int64_t tp = 1;            ///< ranks that split heads, columns of the MLP and the vocabulary
  int64_t sequence_ranks = 1;  ///< s: ranks that split the tokens of a sequence

  int64_t set_count(int64_t layers) const { return sets == 0 ? layers : sets; }
  int64_t logits_of(int64_t batch) const { return logits == 0 ? batch : std::min(logits, batch); }
  /// T/s: this rank's tokens of a sequence of T tokens.
  int64_t local_tokens(int64_t T) const { return div_exact(T, sequence_ranks); }
};

/// Widths of the tensors of these names, which lie inside the parts of a block, on one of tp ranks.
struct LocalWidths {
  LocalWidths(const GptConfig& config, int64_t tp);

  int64_t qkv, att;
  int64_t fc, act;
  int64_t dact;  ///< 0: dact and dfc are one tensor
};

/// The gradients inside the MLP. With SwiGLU, dact has memory of its own.
MlpGrads mlp_grads(const GptConfig& config, Tensor dfc, Tensor dact);

/// @param plan with dtype F64 for gradient checks with `ref`
Activations alloc_activations(Arena& arena, const GptConfig& config, int64_t batch,
                              const ActivationPlan& plan = {});
/// The same for plan.slots micro-batches that are in flight together, in a part of the model with
/// config.layers blocks. The slots share logits, product, and what is not kept for backward.
std::vector<Activations> alloc_slots(Arena& arena, const GptConfig& config, int64_t batch,
                                     const ActivationPlan& plan);
ActGrads alloc_act_grads(Arena& arena, const GptConfig& config, int64_t batch,
                         const ActivationPlan& plan = {});

/// Bytes that alloc_activations counts as Activation. For GPT-2, with everything kept in F32:
/// 4 B T (L (16 C + NH + 4) + 2 C + 2 + Vp). tp ranks divide 12 C, NH and Vp of this by tp, and s
/// sequence ranks divide the rest by s. In general, 16 C is C + qkv_rows() + fc_rows() + inner()
/// inside the parts and 4 C outside of them. With RMSNorm the 4 statistics are 2.
int64_t activation_bytes(const GptConfig& config, int64_t batch, const ActivationPlan& plan = {});

/// Bytes that alloc_activations and alloc_act_grads count as Workspace: product, stream, branch and
/// norm (4 C), and inside the parts the gradients of qkv, att and fc, and of act with SwiGLU. For
/// GPT-2 in F32: 4 B T (12 C), of which 4 C are divided by s and 8 C by tp. angle_bytes() come on
/// top.
int64_t act_grad_bytes(const GptConfig& config, int64_t batch, const ActivationPlan& plan = {});

/// Workspace of alloc_activations for rotary positions: 4 T HS, for any batch.
int64_t angle_bytes(const GptConfig& config);

}  // namespace ladder
