// What tensor parallelism costs on the wire: the formula of the README.
#pragma once

#include <cstdint>

#include "chapters/06_checkpointing/recompute.h"
#include "chapters/11_tensor_parallel/sequence_parallel.h"
#include "common/model/activations.h"
#include "common/model/config.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// What ranks that share layers have of a model: all of it, or a stage of a pipeline.
struct SharedLayers {
  int64_t blocks;
  int64_t again;  ///< blocks that are computed again
  bool embed = true, head = true;
  int64_t gathers = 2;  ///< of a block under sequence parallelism, for weight gradients
};

/// Bytes that one rank sends for activations in a step of `sequences`: for each block two
/// all-reduces forward and two backward, one for the embedding and one for the head; and two for
/// each block that is computed again.
///
/// Under sequence parallelism an all-reduce is a reduce-scatter with an all-gather on the other
/// side of the block, of the same bytes. Backward gathers what the two parts of a block have read
/// once more; and the sums of each sequence's chunks are gathered, of norm_gradients() a norm.
inline int64_t tp_traffic(const GptConfig& gpt, const ActivationPlan& acts,
                          const SharedLayers& shared, int64_t sequences) {
  const int64_t t = acts.tp, embed = shared.embed ? 1 : 0, head = shared.head ? 1 : 0;
  const int64_t reductions = 4 * shared.blocks + 2 * shared.again + embed + head;
  const bool sequence_parallel = acts.sequence_ranks > 1;
  const int64_t gathers = sequence_parallel ? shared.gathers * shared.blocks : 0;
  const int64_t norms = sequence_parallel ? 2 * shared.blocks + head : 0;
  const int64_t chunks = norm_gradients(gpt) * norms * sequences * kTokenChunks * gpt.channels;
  const int64_t tokens = (2 * reductions + gathers) * sequences * gpt.seq_len * gpt.channels;
  return (t - 1) * (size_of(acts.dtype) * tokens + size_of(Dtype::F32) * chunks) / t;
}

/// The same of a whole model.
inline int64_t tp_traffic(const GptConfig& gpt, const ActivationPlan& acts,
                          const Recompute& recompute, int64_t sequences) {
  return tp_traffic(gpt, acts, {.blocks = gpt.layers, .again = recompute.blocks_again()},
                    sequences);
}

}  // namespace ladder
