// Squared norms as integers (kernels/limbs.h), and the adaptive gradient clipping that uses
// them.
#include <algorithm>
#include <cmath>

#include "kernels/limbs.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {

void squared_norm(const Ctx&, Tensor limbs, Tensor x) {
  const Extents s = check_shapes(Op::squared_norm, limbs, x);
  dispatch(x, [&]<class Real>(Real) {
    for (int64_t r = 0; r < s.R; ++r)
      for (int64_t begin = 0; begin < s.N; begin += kNormLeaf) {
        double sum = 0;
        for (int64_t n = begin; n < std::min(begin + kNormLeaf, s.N); ++n) {
          const double value = x.data<Real>()[r * s.N + n];
          sum += value * value;
        }
        add_to_limbs(limbs.data<int64_t>() + r * kLimbs, sum);
      }
  });
}

/// arXiv 2102.06171, equation 3: no row of the gradient is longer than `clip` times the row of
/// weights.
void adaptive_clip(const Ctx&, Tensor grad, Tensor grad_limbs, Tensor weight_limbs, float clip) {
  const Extents s = check_shapes(Op::adaptive_clip, grad, grad_limbs, weight_limbs);
  dispatch(grad, [&]<class Real>(Real) {
    for (int64_t r = 0; r < s.R; ++r) {
      const double g = std::sqrt(limbs_value(grad_limbs.data<int64_t>() + r * kLimbs));
      const double w = std::sqrt(limbs_value(weight_limbs.data<int64_t>() + r * kLimbs));
      const double factor = clip * std::max(w, 1e-3) / std::max(g, 1e-6);
      if (factor >= 1) continue;
      for (int64_t n = 0; n < s.N; ++n) grad.data<Real>()[r * s.N + n] *= Real(factor);
    }
  });
}

}  // namespace ladder::ref
