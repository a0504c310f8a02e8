// What tensor parallelism costs on the wire: the formula of the README.
#pragma once

#include <cstdint>

#include "chapters/06_checkpointing/recompute.h"
#include "common/model/activations.h"
#include "common/model/config.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// Bytes that one rank sends for activations in a step of `sequences`: for each block two
/// all-reduces forward and two backward, one for the embedding and one for the head; and two for
/// each block that is computed again.
///
/// Under sequence parallelism an all-reduce is a reduce-scatter with an all-gather on the other
/// side of the block, of the same bytes. Backward gathers what the two parts of a block have read
/// once more; and the sums of each sequence's chunks are gathered, of two gradients a norm.
inline int64_t tp_traffic(const GptConfig& gpt, const ActivationPlan& acts,
                          const Recompute& recompute, int64_t sequences) {
  const int64_t L = gpt.layers, t = acts.tp;
  int64_t reductions = 4 * L + 2;
  for (int64_t l = 0; l < L; ++l) reductions += 2 * recompute.segment_before(l).size();
  const bool gathers = acts.sequence_ranks > 1;
  const int64_t halves = 2 * reductions + (gathers ? 2 * L : 0);
  const int64_t chunks = gathers ? 2 * (2 * L + 1) * sequences * kTokenChunks * gpt.channels : 0;
  const int64_t tokens = halves * sequences * gpt.seq_len * gpt.channels;
  return (t - 1) * (size_of(acts.dtype) * tokens + size_of(Dtype::F32) * chunks) / t;
}

}  // namespace ladder
