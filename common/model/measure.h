// What every step measures: the mean loss of a batch, and the global norm of its gradient.
#pragma once

#include "common/comm/comm.h"
#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// The Euclidean norm of all gradients together. Its squares are added as integers, so it has the
/// same bits in any order (kernels/limbs.h). NaN if any element is NaN or infinite.
/// @param grads F32
/// @param limbs I64 (1, kLimbs), workspace that the host can read
/// @param others the ranks that hold the other shards; all of them call this
double grad_norm(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs,
                 Comm* others = nullptr);

/// The mean loss per target. losses (B) has the sum of each sequence; these are joined as a tree
/// over sequences and divided by the number of targets.
float mean_loss(const Ctx& ctx, Tensor losses, int64_t targets);

/// The sum of losses (B) in double, ascending. Validation adds it up, however its batches are cut.
double total_loss(const Ctx& ctx, Tensor losses);

}  // namespace ladder
