// Sums and products, element by element.
#include <algorithm>

#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {

void residual_forward(const Ctx&, Tensor out, Tensor residual, Tensor product, Tensor bias) {
  const Extents s = check_shapes(Op::residual_forward, out, residual, product, bias);
  dispatch(out, [&]<class Real>(Real) {
    const Real* b = bias.data<Real>();
    for (int64_t i = 0; i < s.R * s.C; ++i) {
      const Real branch = product.data<Real>()[i];
      out.data<Real>()[i] = residual.data<Real>()[i] + (b ? branch + b[i % s.C] : branch);
    }
  });
}

void add(const Ctx&, Tensor out, Tensor a, Tensor b) {
  const int64_t n = check_shapes(Op::add, out, a, b).R;
  dispatch(out, [&]<class Real>(Real) {
    for (int64_t i = 0; i < n; ++i) out.data<Real>()[i] = a.data<Real>()[i] + b.data<Real>()[i];
  });
}

void scale(const Ctx&, Tensor x, float factor) {
  const int64_t n = check_shapes(Op::scale, x).R;
  dispatch(x, [&]<class Real>(Real) {
    for (int64_t i = 0; i < n; ++i) x.data<Real>()[i] *= Real(factor);
  });
}

void copy_columns(const Ctx&, Tensor to, int64_t to_column, Tensor from, int64_t from_column,
                  int64_t count) {
  const Extents s = check_shapes(Op::copy_columns, to, to_column, from, from_column, count);
  dispatch(to, [&]<class Real>(Real) {
    for (int64_t row = 0; row < s.R * s.G; ++row)
      std::copy_n(from.data<Real>() + row * s.M + from_column, count,
                  to.data<Real>() + row * s.N + to_column);
  });
}

}  // namespace ladder::ref
