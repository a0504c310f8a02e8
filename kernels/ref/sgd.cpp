// SGD with momentum, plain or Nesterov's.
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {

void sgd_update(const Ctx&, Tensor param, Tensor velocity, Tensor grad, const SgdStep& step) {
  const int64_t n = check_shapes(Op::sgd_update, param, velocity, grad).R;
  dispatch(param, [&]<class Real>(Real) {
    const Real lr = step.lr, momentum = step.momentum;
    for (int64_t i = 0; i < n; ++i) {
      Real update = grad.data<Real>()[i];
      if (velocity) {
        Real& v = velocity.data<Real>()[i];
        v = momentum * v + update;
        // Nesterov looks one step ahead: the gradient plus what momentum will do next.
        update = step.nesterov ? update + momentum * v : v;
      }
      param.data<Real>()[i] -= lr * update;
    }
  });
}

}  // namespace ladder::ref
