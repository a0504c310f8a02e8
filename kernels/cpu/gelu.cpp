// GELU in its tanh form, forward and backward.
//
// 1/2 (1 + tanh u) = s(2 u) with the logistic function s(z) = 1 / (1 + e^-z), so one exponential
// serves, and nothing overflows: e^-z is bounded, and for large |x| the result is x, or less than
// 1e-37 in size.
#include <cmath>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

const float kTwoRootTwoOverPi = 1.5957691216f;  // 2 sqrt(2 / pi)
const float kCubic = 0.044715f;

/// s(2 u) with 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
HWY_INLINE Vec gate(Vec x) {
  const Vec inner = hn::MulAdd(hn::Mul(broadcast(kCubic), hn::Mul(x, x)), x, x);
  const Vec e = exp(hn::Mul(broadcast(-kTwoRootTwoOverPi), inner));
  return hn::Div(broadcast(1), hn::Add(broadcast(1), e));
}

HWY_INLINE Vec gelu(Vec x) {
  // Below -16 the result is as good as 0; the bound keeps infinity times 0 away.
  const Vec v = hn::Max(broadcast(-16), x);
  return hn::Mul(v, gate(v));
}

/// gelu'(x)
HWY_INLINE Vec gelu_slope(Vec x) {
  const Vec s = gate(x);
  // d(2 u)/dx = 2 sqrt(2 / pi) (1 + 3 0.044715 x^2);  s' = s (1 - s).
  // Beyond |x| = 16 the slope of s is 0; the bound keeps 0 times infinity away.
  const Vec near = hn::Max(broadcast(-16), hn::Min(broadcast(16), x));
  const Vec slope = hn::Mul(broadcast(kTwoRootTwoOverPi),
                            hn::MulAdd(broadcast(3 * kCubic), hn::Mul(near, near), broadcast(1)));
  const Vec ds = hn::Mul(hn::Mul(s, hn::Sub(broadcast(1), s)), slope);
  return hn::MulAdd(near, ds, s);
}

/// So many elements ahead memory is asked for: the arithmetic of a vector is so long that the
/// processor does not see that far by itself.
constexpr int64_t kAhead = 512;

}  // namespace

void gelu_forward(const Ctx& ctx, Tensor out, Tensor inp) {
  const int64_t n = check_gelu_forward(out, inp);
  dispatch_out(out, {inp}, [&]<class Real, class Wide>(Real, Wide) {
    Real* y = out.data<Real>();
    const Real* x = inp.data<Real>();
    parallel_for(ctx, n, kAlign, 4, [=](Range range) {
      for_vectors<Wide>(range.begin, range.end, [=](int64_t i, auto io) {
        __builtin_prefetch(x + i + kAhead);
        io.store(gelu(io.load(x + i)), y + i);
      });
    });
  });
}

void gelu_backward(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp) {
  const int64_t n = check_gelu_backward(dinp, dout, inp);
  dispatch_out(dinp, {dout, inp}, [&]<class Real, class Wide>(Real, Wide) {
    Real* dx = dinp.data<Real>();
    const Real* dy = dout.data<Real>();
    const Real* x = inp.data<Real>();
    parallel_for(ctx, n, kAlign, 4, [=](Range range) {
      for_vectors<Wide>(range.begin, range.end, [=](int64_t i, auto io) {
        __builtin_prefetch(dy + i + kAhead);
        __builtin_prefetch(x + i + kAhead);
        io.store(hn::Mul(io.load(dy + i), gelu_slope(io.load(x + i))), dx + i);
      });
    });
  });
}

}  // namespace ladder::cpu
