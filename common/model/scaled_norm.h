// The global norm of gradients that count with a factor each.
#pragma once

#include <functional>
#include <vector>

#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// What gradients are multiplied by, by their parameter's role.
struct NormFactors {
  std::vector<double> rows{1};  ///< every factor that of() may return; squares are summed for each
  std::function<double(Role)> of = [](Role) { return 1.0; };
};

/// grad_norm (measure.h) of gradients that are multiplied by their parameters' factors.
/// @param limbs I64 (R, kLimbs), workspace that the host can read: a row for each of factors.rows
double scaled_norm(const Ctx& ctx, const Flat& grads, const ParamLayout& layout, Tensor limbs,
                   const NormFactors& factors);

}  // namespace ladder
