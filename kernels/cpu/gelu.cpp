// GELU in its tanh form, forward and backward.
//
// GELU is x/2 (1 + tanh u), where u = sqrt(2 / pi) (x + 0.044715 x^3). Since
// 1/2 (1 + tanh u) = 1 / (1 + e^(-2 u)), one exponential serves. As a power of two,
//
//   e^(-2 u) = 2^(x f(x^2)),   f(x^2) = -(2 sqrt(2 / pi) log2 e) (1 + 0.044715 x^2).
//
// At |x| = 10 this is 2^126 or 2^-126. Beyond it the result is x to the last bit or, for negative
// x, less than 1e-36 in size. So x is held to +-10 in this formula, and nothing overflows.
#include <type_traits>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/groups.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

constexpr double kTwoRootTwoOverPi = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double kLog2E = 1.4426950408889634;
constexpr double kCubic = 0.044715;

/// c0 + c1 x^2, from the squares of x.
template <size_t N>
HWY_INLINE Vecs<N> even(double c0, double c1, const Vecs<N>& squares) {
  const Vec first = broadcast(static_cast<float>(c0)), second = broadcast(static_cast<float>(c1));
  return each<N>([&](size_t i) { return hn::MulAdd(second, squares[i], first); });
}

/// x held to [-10, 10]. The constants come first, so that a NaN in x passes.
template <size_t N>
HWY_INLINE Vecs<N> held(const Vecs<N>& x) {
  return each<N>(
      [&](size_t i) { return larger_lanes(broadcast(-10), smaller_lanes(broadcast(10), x[i])); });
}

/// 1 + e^(-2 u) for |x| <= 10
template <size_t N>
HWY_INLINE Vecs<N> divisor(const Vecs<N>& x, const Vecs<N>& squares) {
  constexpr double kLinear = -kTwoRootTwoOverPi * kLog2E;
  const auto power = exp2<N>(cut_product<N>(x, even<N>(kLinear, kLinear * kCubic, squares)));
  return each<N>([&](size_t i) { return hn::Add(broadcast(1), power[i]); });
}

template <size_t N>
HWY_INLINE Vecs<N> squared(const Vecs<N>& x) {
  return each<N>([&](size_t i) { return hn::Mul(x[i], x[i]); });
}

template <size_t N>
HWY_INLINE Vecs<N> gelu(const Vecs<N>& x) {
  const auto near = held<N>(x);
  const auto below = divisor<N>(near, squared<N>(near));
  return each<N>([&](size_t i) { return hn::Div(larger_lanes(broadcast(-10), x[i]), below[i]); });
}

/// gelu'(x) = s + x s',  s = 1 / (1 + e^(-2 u)),  s' = s (1 - s) d(2 u)/dx,
/// d(2 u)/dx = 2 sqrt(2 / pi) (1 + 3 0.044715 x^2)
template <size_t N>
HWY_INLINE Vecs<N> gelu_slope(const Vecs<N>& x) {
  const auto near = held<N>(x), squares = squared<N>(near), below = divisor<N>(near, squares);
  const auto du = even<N>(kTwoRootTwoOverPi, 3 * kCubic * kTwoRootTwoOverPi, squares);
  return each<N>([&](size_t i) {
    const Vec s = hn::Div(broadcast(1), below[i]);
    const Vec steepness = hn::Mul(s, hn::Sub(broadcast(1), s));
    return hn::MulAdd(hn::Mul(near[i], du[i]), steepness, s);
  });
}

}  // namespace

void gelu_forward(const Ctx& ctx, Tensor out, Tensor inp) {
  const int64_t n = check_shapes(Op::gelu_forward, out, inp).R;
  dispatch_out(out, {inp}, [&]<class Real, class Wide>(Real, Wide) {
    Real* y = out.data<Real>();
    const Real* x = inp.data<Real>();
    parallel_for(ctx, n, kAlign, 4, [=](Range range) {
      for_groups<Wide>(range, [=]<size_t N>(int64_t i, auto io, std::integral_constant<size_t, N>) {
        const auto at = [&](size_t part) { return i + static_cast<int64_t>(part) * kLanes; };
        const auto result = gelu<N>(each<N>([&](size_t part) {
          Whole::ask(x + at(part) + kAhead);
          return io.load(x + at(part));
        }));
        for (size_t part = 0; part < N; ++part) io.store(result[part], y + at(part));
      });
    });
  });
}

void gelu_backward(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp) {
  const int64_t n = check_shapes(Op::gelu_backward, dinp, dout, inp).R;
  dispatch_out(dinp, {dout, inp}, [&]<class Real, class Wide>(Real, Wide) {
    Real* dx = dinp.data<Real>();
    const Real* dy = dout.data<Real>();
    const Real* x = inp.data<Real>();
    parallel_for(ctx, n, kAlign, 4, [=](Range range) {
      for_groups<Wide>(range, [=]<size_t N>(int64_t i, auto io, std::integral_constant<size_t, N>) {
        const auto at = [&](size_t part) { return i + static_cast<int64_t>(part) * kLanes; };
        const auto slope = gelu_slope<N>(each<N>([&](size_t part) {
          Whole::ask(dy + at(part) + kAhead);
          Whole::ask(x + at(part) + kAhead);
          return io.load(x + at(part));
        }));
        for (size_t part = 0; part < N; ++part)
          io.store(hn::Mul(io.load(dy + at(part)), slope[part]), dx + at(part));
      });
    });
  });
}

void gelu_forward_codes(const Ctx& ctx, Tensor codes, Tensor out, Tensor inp) {
  check_shapes(Op::gelu_forward_codes, codes, out, inp);
  gelu_forward(ctx, out, inp);
  cast(ctx, codes, out);
}

void gelu_backward_codes(const Ctx& ctx, Tensor codes, Tensor dinp, Tensor dout, Tensor inp) {
  check_shapes(Op::gelu_backward_codes, codes, dinp, dout, inp);
  gelu_backward(ctx, dinp, dout, inp);
  cast(ctx, codes, dinp);
}

}  // namespace ladder::cpu
