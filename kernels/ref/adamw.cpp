// Adam with L2 and AdamW.
#include "kernels/ref/adam_step.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {

void adamw_update(const Ctx&, Tensor param, Tensor m, Tensor v, Tensor grad, const AdamStep& step) {
  const int64_t n = check_shapes(Op::adamw_update, param, m, v, grad).R;
  dispatch(param, [&]<class Real>(Real) {
    for (int64_t i = 0; i < n; ++i)
      adam_step(param.data<Real>()[i], m.data<Real>()[i], v.data<Real>()[i], grad.data<Real>()[i],
                step);
  });
}

}  // namespace ladder::ref
