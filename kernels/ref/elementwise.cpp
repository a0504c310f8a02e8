// Sums and factors, element by element.
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {

void join_forward(const Ctx&, Tensor out, Tensor residual, Tensor product, Tensor bias) {
  const JoinShape s = check_join_forward(out, residual, product, bias);
  dispatch(out, [&]<class Real>(Real) {
    for (int64_t i = 0; i < s.rows * s.C; ++i)
      out.data<Real>()[i] =
          residual.data<Real>()[i] + (product.data<Real>()[i] + bias.data<Real>()[i % s.C]);
  });
}

void add(const Ctx&, Tensor out, Tensor a, Tensor b) {
  const int64_t n = check_add(out, a, b);
  dispatch(out, [&]<class Real>(Real) {
    for (int64_t i = 0; i < n; ++i) out.data<Real>()[i] = a.data<Real>()[i] + b.data<Real>()[i];
  });
}

void scale(const Ctx&, Tensor x, float factor) {
  const int64_t n = check_scale(x);
  dispatch(x, [&]<class Real>(Real) {
    for (int64_t i = 0; i < n; ++i) x.data<Real>()[i] *= Real(factor);
  });
}

}  // namespace ladder::ref
