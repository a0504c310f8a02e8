// SwiGLU, arXiv 2002.05202: a gate for each channel. It is close to 0 far below 0, and close to its
// argument far above.
#include <algorithm>

#include "kernels/math.h"
#include "kernels/ref/dispatch.h"
#include "kernels/ref/ops.h"
#include "kernels/shapes.h"

namespace ladder::ref {
namespace {

/// Below -kFarGate, silu counts as if its argument were -kFarGate; there it is almost 0.
constexpr double kFarGate = 88;

}  // namespace

void swiglu_forward(const Ctx&, Tensor out, Tensor inp) {
  check_shapes(Op::swiglu_forward, out, inp);
  const int64_t n = out.size();
  dispatch(inp, [&]<class Real>(Real) {
    const Real* x = inp.data<Real>();
    for (int64_t i = 0; i < n; ++i) {
      const Real gate = std::max(x[2 * i], Real(-kFarGate));
      out.data<Real>()[i] = gate / (1 + math::exp(-gate)) * x[2 * i + 1];
    }
  });
}

void swiglu_backward(const Ctx&, Tensor dinp, Tensor dout, Tensor inp) {
  check_shapes(Op::swiglu_backward, dinp, dout, inp);
  const int64_t n = dout.size();
  dispatch(inp, [&]<class Real>(Real) {
    const Real *x = inp.data<Real>(), *d = dout.data<Real>();
    for (int64_t i = 0; i < n; ++i) {
      const Real gate = std::max(x[2 * i], Real(-kFarGate)), up = x[2 * i + 1];
      const Real s = 1 / (1 + math::exp(-gate));
      // Far above 0, 1 - s is 0, but the gate may be infinite. So the gate is held to kFarGate.
      const Real slope = s + std::min(gate, Real(kFarGate)) * s * (1 - s);
      dinp.data<Real>()[2 * i] = d[i] * up * slope;
      dinp.data<Real>()[2 * i + 1] = d[i] * (gate * s);
    }
  });
}

}  // namespace ladder::ref
