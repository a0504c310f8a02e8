// SwiGLU, forward and backward. Gates and the values that they multiply alternate in memory. Two
// vectors are split into one of gates and one of values; gradients are interleaved in the same way.
#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/groups.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// Below -kFarGate, silu counts as if its argument were -kFarGate; there it is almost 0.
constexpr float kFarGate = 88;

/// How to load and store vector `which` of two, where io fits one vector with half of the elements.
template <class Wide>
HWY_INLINE Wide of_two(Wide io, int64_t) {
  return io;
}
HWY_INLINE Part of_two(const Part& io, int64_t which) {
  return Part(std::clamp(2 * io.count() - which * kLanes, int64_t{0}, kLanes));
}

/// Gates and values of kLanes channels.
struct Gated {
  Vec gate, up;
};

template <class Real, class Io>
HWY_INLINE Gated load_gated(const Io& io, const Real* p) {
  const Vec low = of_two(io, 0).load(p), high = of_two(io, 1).load(p + kLanes);
  return {hn::ConcatEven(kVec, high, low), hn::ConcatOdd(kVec, high, low)};
}

template <class Real, class Io>
HWY_INLINE void store_gated(const Io& io, const Gated& x, Real* p) {
  // The lanes of half a vector, each twice: first for the lower half, then for the upper half.
  constexpr auto kTwice = [] {
    std::array<std::array<int32_t, static_cast<size_t>(kLanes)>, 2> lanes{};
    for (int32_t i = 0; i < kLanes; ++i) {
      lanes[0][static_cast<size_t>(i)] = i / 2;
      lanes[1][static_cast<size_t>(i)] = static_cast<int32_t>(kLanes) / 2 + i / 2;
    }
    return lanes;
  }();
  const auto half = [&](size_t which) {
    const auto lanes = hn::SetTableIndices(kVec, kTwice[which].data());
    return hn::OddEven(hn::TableLookupLanes(x.up, lanes), hn::TableLookupLanes(x.gate, lanes));
  };
  of_two(io, 0).store(half(0), p);
  of_two(io, 1).store(half(1), p + kLanes);
}

/// x, but at least -kFarGate. The constant comes first, so that a NaN in x passes.
HWY_INLINE Vec not_far_below(Vec x) { return larger_lanes(broadcast(-kFarGate), x); }
/// x, but at most kFarGate.
HWY_INLINE Vec not_far_above(Vec x) { return smaller_lanes(broadcast(kFarGate), x); }

/// 1 + e^(-x)
template <size_t N>
HWY_INLINE Vecs<N> divisor(const Vecs<N>& x) {
  const auto power = exp<N>(each<N>([&](size_t i) { return hn::Neg(x[i]); }));
  return each<N>([&](size_t i) { return hn::Add(broadcast(1), power[i]); });
}

/// Loads N vectors of gates and of values from p on, and asks for the memory that comes next.
template <size_t N, class Real, class Io>
HWY_INLINE std::array<Gated, N> load_all(const Io& io, const Real* p) {
  std::array<Gated, N> x;
  for (size_t part = 0; part < N; ++part) {
    const Real* from = p + 2 * static_cast<int64_t>(part) * kLanes;
    Whole::ask(from + kAhead);
    Whole::ask(from + kAhead + kLanes);
    x[part] = load_gated(io, from);
    x[part].gate = not_far_below(x[part].gate);
  }
  return x;
}

}  // namespace

void swiglu_forward(const Ctx& ctx, Tensor out, Tensor inp) {
  check_shapes(Op::swiglu_forward, out, inp);
  const int64_t n = out.size();
  dispatch_out(out, {inp}, [&]<class Real, class Wide>(Real, Wide) {
    Real* y = out.data<Real>();
    const Real* x = inp.data<Real>();
    parallel_for(ctx, n, kAlign, 6, [=](Range range) {
      for_groups<Wide>(range, [=]<size_t N>(int64_t i, auto io, std::integral_constant<size_t, N>) {
        const auto both = load_all<N>(io, x + 2 * i);
        const auto below = divisor<N>(each<N>([&](size_t part) { return both[part].gate; }));
        for (size_t part = 0; part < N; ++part) {
          const Vec silu = hn::Div(both[part].gate, below[part]);
          io.store(hn::Mul(silu, both[part].up), y + i + static_cast<int64_t>(part) * kLanes);
        }
      });
    });
  });
}

void swiglu_backward(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor inp) {
  check_shapes(Op::swiglu_backward, dinp, dout, inp);
  const int64_t n = dout.size();
  dispatch_out(dinp, {inp}, [&]<class Real, class Wide>(Real, Wide) {
    Real* dx = dinp.data<Real>();
    const Real* dy = dout.data<Real>();
    const Real* x = inp.data<Real>();
    parallel_for(ctx, n, kAlign, 8, [=](Range range) {
      for_groups<Wide>(range, [=]<size_t N>(int64_t i, auto io, std::integral_constant<size_t, N>) {
        const auto both = load_all<N>(io, x + 2 * i);
        const auto below = divisor<N>(each<N>([&](size_t part) { return both[part].gate; }));
        for (size_t part = 0; part < N; ++part) {
          const int64_t at = i + static_cast<int64_t>(part) * kLanes;
          Whole::ask(dy + at + kAhead);
          const Vec gate = both[part].gate, s = hn::Div(broadcast(1), below[part]);
          const Vec d = io.load(dy + at), rest = hn::Sub(broadcast(1), s);
          // s + gate s (1 - s). Far above 0, 1 - s is 0, but the gate may be infinite.
          const Vec slope = hn::MulAdd(hn::Mul(not_far_above(gate), rest), s, s);
          store_gated(io,
                      {.gate = hn::Mul(hn::Mul(d, both[part].up), slope),
                       .up = hn::Mul(d, hn::Mul(gate, s))},
                      dx + 2 * at);
        }
      });
    });
  });
}

}  // namespace ladder::cpu
