// A head whose weights are the token embedding, as in GPT-2 (Press and Wolf, arXiv 1608.05859). The
// gradient of such a table has two summands, of which one comes first in backward and the other
// last. Each is summed over the batch by itself, as the rest of the gradient is: over sequences,
// micro-steps and ranks. Only then are the two added, once. So the bits do not depend on who has
// which part of the batch (docs/same_bits.md).
//
// Until then each needs its place. The section of the head, which has no parameters, holds a second
// set of gradients of the first section: chunk r of both belongs to the same rank, which adds them.
// The last norm is in that section, too, so that the head reads one section. In chapters 01 to 03
// one call computes the whole batch. They need no second set: embed_backward_weight() adds to what
// the head has written.
//
//   parameters   | wte wpe norm | block 0 | block 1 | ... |
//   gradients    | wte wpe -    | block 0 | block 1 | ... | wte - norm |
//                  the embedding's                          the head's
#pragma once

#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// The gradient of the parameters. Where the head is not tied, `grads` itself.
/// @param grads the sum over the batch, as layout.grads() has it: F32 (layout.grads().size())
Tensor join_tied_head(const Ctx& ctx, const ParamLayout& layout, Tensor grads);
/// The same of a shard's.
Shard join_tied_head(const Ctx& ctx, const ParamLayout& shard, const Shard& grads);

}  // namespace ladder
