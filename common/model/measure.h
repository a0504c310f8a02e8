// What is measured in every step: the mean loss of a batch and the global norm of its gradient.
#pragma once

#include "common/comm/comm.h"
#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// Euclidean norm of all gradients together, exact in any order of its leaves (kernels/limbs.h).
/// NaN if any element is NaN or infinite.
/// @param grads F32
/// @param limbs I64 (1, kLimbs), scratch that the host can read
/// @param others whose ranks hold the other shards; all call this
double grad_norm(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs,
                 Comm* others = nullptr);

/// Mean loss of a token: losses (B), each the sum over one sequence, joined as a tree over
/// sequences and divided by the number of targets.
float mean_loss(const Ctx& ctx, Tensor losses, int64_t targets);

/// Sum of losses (B) in double, ascending: validation adds it up over any cut into batches.
double total_loss(const Ctx& ctx, Tensor losses);

}  // namespace ladder
