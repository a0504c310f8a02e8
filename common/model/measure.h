// What every step measures: the mean loss of a batch, and the global norm of its gradient.
#pragma once

#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// limbs I64 (1, kLimbs) = the sum of squares of these gradients, in digits that ranks add exactly.
void sum_squares(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs);
/// The root of such a sum.
double norm_of(Tensor limbs);

/// The Euclidean norm of all gradients together. Its squares are added as integers, so it has the
/// same bits in any order (kernels/limbs.h). NaN if any element is NaN or infinite.
/// @param grads F32
/// @param limbs I64 (1, kLimbs), workspace that the host can read
/// @param others a Comm of the ranks that hold the other shards, all of which call this; null:
/// there are none. A template, because common/model includes nothing of common/comm
template <class Group>
double grad_norm(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs,
                 Group* others) {
  sum_squares(ctx, grads, layout, limbs);
  if (others) others->all_reduce(limbs);
  return norm_of(limbs);
}
/// The same where all gradients are here.
inline double grad_norm(const Ctx& ctx, const Flat& grads, const ParamLayout& layout,
                        Tensor limbs) {
  sum_squares(ctx, grads, layout, limbs);
  return norm_of(limbs);
}

/// The mean loss per target. losses (B) has the sum of each sequence; these are joined as a tree
/// over sequences and divided by the number of targets.
float mean_loss(const Ctx& ctx, Tensor losses, int64_t targets);

/// The sum of losses (B) in double, ascending. Validation adds it up, however its batches are cut.
double total_loss(const Ctx& ctx, Tensor losses);

}  // namespace ladder
