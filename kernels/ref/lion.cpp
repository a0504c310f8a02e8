// Lion, arXiv 2302.06675: every weight moves by the same length; the moments decide the sign.
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {

void lion_update(const Ctx&, Tensor param, Tensor m, Tensor grad, const LionStep& step) {
  const int64_t n = check_shapes(Op::lion_update, param, m, grad).R;
  dispatch(param, [&]<class Real>(Real) {
    const Real beta1 = step.beta1, beta2 = step.beta2;
    for (int64_t i = 0; i < n; ++i) {
      Real &w = param.data<Real>()[i], &momentum = m.data<Real>()[i];
      const Real g = grad.data<Real>()[i];
      const Real c = beta1 * momentum + (1 - beta1) * g;
      const Real sign = c > 0 ? 1 : c < 0 ? -1 : c;  // 0 stays 0, NaN stays NaN
      w -= Real(step.lr) * (sign + Real(step.weight_decay) * w);
      momentum = beta2 * momentum + (1 - beta2) * g;
    }
  });
}

}  // namespace ladder::ref
