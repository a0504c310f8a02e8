// How many bytes tensor parallelism sends: the formula of the README.
#pragma once

#include <cstdint>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/11_tensor_parallel/sequence_parallel.h"
#include "common/model/activations.h"
#include "common/model/config.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// The layers that ranks split: those of a whole model, or of a stage of a pipeline.
struct SplitLayers {
  int64_t blocks;
  int64_t again;  ///< blocks that are computed again in backward
  bool embed = true, head = true;
  int64_t gathers = 2;  ///< with sequence parallelism: of a block, for weight gradients
  int64_t token_chunks = kTokenChunks;  ///< of a sequence, on these ranks
};

/// Bytes that one rank sends for activations in a step of `sequences`. Each block has two
/// all-reduces in forward and two in backward, and two more if it is computed again. The embedding
/// and the head have one each.
///
/// With sequence parallelism, an all-reduce becomes a reduce-scatter, and an all-gather on the
/// other side of the residual and the norm, with the same bytes. In addition, backward gathers the
/// inputs of both parts of a block once more, and ranks gather the sums of each sequence's chunks:
/// norm_gradients() per norm.
inline int64_t tp_traffic(const GptConfig& gpt, const ActivationPlan& acts,
                          const SplitLayers& split, int64_t sequences) {
  const int64_t t = acts.tp, embed = split.embed ? 1 : 0, head = split.head ? 1 : 0;
  const int64_t reductions = 4 * split.blocks + 2 * split.again + embed + head;
  const bool sequence_parallel = acts.sequence_ranks > 1;
  const int64_t gathers = sequence_parallel ? split.gathers * split.blocks : 0;
  const int64_t norms = sequence_parallel ? 2 * split.blocks + head : 0;
  const int64_t chunks =
      norm_gradients(gpt) * norms * sequences * split.token_chunks * gpt.channels;
  const int64_t tokens = (2 * reductions + gathers) * sequences * gpt.seq_len * gpt.channels;
  return (t - 1) * (size_of(acts.dtype) * tokens + size_of(Dtype::F32) * chunks) / t;
}

/// The same for a whole model.
inline int64_t tp_traffic(const GptConfig& gpt, const ActivationPlan& acts,
                          const Recompute& recompute, int64_t sequences) {
  return tp_traffic(gpt, acts, {.blocks = gpt.layers, .again = recompute.blocks_again()},
                    sequences);
}

}  // namespace ladder
