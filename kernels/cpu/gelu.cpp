// GELU in its tanh form, forward and backward.
//
// 1/2 (1 + tanh u) = s(2 u) with the logistic function s(z) = 1 / (1 + e^-z), so one exponential
// serves, and nothing overflows: e^-z is bounded, and for large |x| the result is x, or less than
// 1e-37 in size.
#include <cmath>
#include <type_traits>

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
template <size_t N>
HWY_INLINE Vecs<N> gate(const Vecs<N>& x) {
  const auto square = each<N>([&](size_t i) { return hn::Mul(x[i], x[i]); });
  const auto cubic = each<N>([&](size_t i) { return hn::Mul(broadcast(kCubic), square[i]); });
  const auto inner = each<N>([&](size_t i) { return hn::MulAdd(cubic[i], x[i], x[i]); });
  const auto e =
      exp<N>(each<N>([&](size_t i) { return hn::Mul(broadcast(-kTwoRootTwoOverPi), inner[i]); }));
  return each<N>([&](size_t i) { return hn::Div(broadcast(1), hn::Add(broadcast(1), e[i])); });
}

template <size_t N>
HWY_INLINE Vecs<N> gelu(const Vecs<N>& x) {
  // Below -16 the result is as good as 0; the bound keeps infinity times 0 away.
  const auto v = each<N>([&](size_t i) { return hn::Max(broadcast(-16), x[i]); });
  const auto s = gate<N>(v);
  return each<N>([&](size_t i) { return hn::Mul(v[i], s[i]); });
}

/// gelu'(x)
template <size_t N>
HWY_INLINE Vecs<N> gelu_slope(const Vecs<N>& x) {
  const auto gates = gate<N>(x);
  return each<N>([&](size_t i) {
    // d(2 u)/dx = 2 sqrt(2 / pi) (1 + 3 0.044715 x^2);  s' = s (1 - s).
    // Beyond |x| = 16 the slope of s is 0; the bound keeps 0 times infinity away.
    const Vec s = gates[i];
    const Vec near = hn::Max(broadcast(-16), hn::Min(broadcast(16), x[i]));
    const Vec slope = hn::Mul(broadcast(kTwoRootTwoOverPi),
                              hn::MulAdd(broadcast(3 * kCubic), hn::Mul(near, near), broadcast(1)));
    const Vec ds = hn::Mul(hn::Mul(s, hn::Sub(broadcast(1), s)), slope);
    return hn::MulAdd(near, ds, s);
  });
}

/// So many vectors go side by side.
constexpr size_t kTogether = 6;

/// Calls f(i, io, std::integral_constant<size_t, N>) for N vectors from i on: kTogether, or one.
template <class Wide, class F>
HWY_INLINE void for_groups(Range range, F&& f) {
  constexpr auto kElements = static_cast<int64_t>(kTogether) * kLanes;
  int64_t i = range.begin;
  for (; i + kElements <= range.end; i += kElements)
    f(i, Wide{}, std::integral_constant<size_t, kTogether>{});
  for_vectors<Wide>(i, range.end,
                    [&](int64_t at, auto io) { f(at, io, std::integral_constant<size_t, 1>{}); });
}

/// So many elements ahead memory is asked for: the arithmetic of a vector is so long that the
/// processor does not see that far by itself. Always into L1: L2 was no faster.
constexpr int64_t kAhead = 512;

}  // namespace

void gelu_forward(const Ctx& ctx, Tensor out, Tensor inp) {
  const int64_t n = check_gelu_forward(out, inp);
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
  const int64_t n = check_gelu_backward(dinp, dout, inp);
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

}  // namespace ladder::cpu
