// GELU in its tanh form, arXiv 1606.08415: close to 0 far below 0, close to x far above.
#include <algorithm>
#include <numbers>

#include "kernels/math.h"
#include "kernels/ref/any_dtype.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {
namespace {

constexpr double kSlope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2/pi)
constexpr double kCubic = 0.044715;

/// Beyond this, tanh is 1 or -1 in double. Where an infinite x would meet a factor of 0, x is held
/// here.
constexpr double kFar = 20;

template <class Real>
Real gelu(Real x) {
  x = std::max(x, Real(-kFar));
  return x / 2 * (1 + math::tanh(Real(kSlope) * (x + Real(kCubic) * x * x * x)));
}

/// With th = tanh(z(x)): gelu' = (1 + th)/2 + x/2 (1 - th^2) z'(x).
template <class Real>
Real gelu_slope(Real x) {
  const Real th = math::tanh(Real(kSlope) * (x + Real(kCubic) * x * x * x));
  const Real near = std::clamp(x, Real(-kFar), Real(kFar));
  const Real dz = Real(kSlope) * (1 + 3 * Real(kCubic) * near * near);
  return (1 + th) / 2 + near / 2 * (1 - th * th) * dz;
}

}  // namespace

void gelu_forward(const Ctx&, Tensor out, Tensor inp) {
  const int64_t n = check_shapes(Op::gelu_forward, out, inp).R;
  dispatch(inp, [&]<class Real>(Real) {
    for (int64_t i = 0; i < n; ++i) out.data<Real>()[i] = gelu(inp.data<Real>()[i]);
  });
}

void gelu_backward(const Ctx&, Tensor dinp, Tensor dout, Tensor inp) {
  const int64_t n = check_shapes(Op::gelu_backward, dinp, dout, inp).R;
  dispatch(inp, [&]<class Real>(Real) {
    for (int64_t i = 0; i < n; ++i)
      dinp.data<Real>()[i] = dout.data<Real>()[i] * gelu_slope(inp.data<Real>()[i]);
  });
}

void gelu_forward_codes(const Ctx& ctx, Tensor codes, Tensor out, Tensor inp) {
  check_shapes(Op::gelu_forward_codes, codes, out, inp);
  AnyDtype<gelu_forward>::call(ctx, out, inp);
  cast(ctx, codes, out);
}

void gelu_backward_codes(const Ctx& ctx, Tensor codes, Tensor dinp, Tensor dout, Tensor inp) {
  check_shapes(Op::gelu_backward_codes, codes, dinp, dout, inp);
  AnyDtype<gelu_backward>::call(ctx, dinp, dout, inp);
  cast(ctx, codes, dinp);
}

}  // namespace ladder::ref
