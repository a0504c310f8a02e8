// One step of Lion: every weight moves by the same length; a sign gives the direction.
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {
namespace {

/// x + 1 for positive d, x - 1 for negative d, x for zero d, NaN for NaN.
HWY_INLINE Vec add_sign(Vec x, Vec d) {
  const Vec sign = hn::CopySign(broadcast(1), d);
  const Vec moved = hn::Add(x, hn::IfThenZeroElse(hn::Eq(d, zero()), sign));
  return hn::IfThenElse(hn::Eq(d, d), moved, d);
}

}  // namespace

void lion_update(const Ctx& ctx, Tensor param, Tensor m, Tensor grad, const LionStep& step) {
  const int64_t n = check_shapes(Op::lion_update, param, m, grad).R;
  float* w = param.data<float>();
  float* moment = m.data<float>();
  const float* g = grad.data<float>();
  parallel_for(ctx, n, kAlign, 1, [&](Range range) {
    for_vectors(range.begin, range.end, [&](int64_t i, auto io) {
      const Vec slope = io.load(g + i);
      const Vec old = io.load(moment + i);
      const auto blend = [&](float beta) {
        return hn::MulAdd(broadcast(beta), old, hn::Mul(broadcast(1 - beta), slope));
      };
      const Vec weight = io.load(w + i);
      const Vec move = add_sign(hn::Mul(broadcast(step.weight_decay), weight), blend(step.beta1));
      io.store(hn::NegMulAdd(broadcast(step.lr), move, weight), w + i);
      io.store(blend(step.beta2), moment + i);
    });
  });
}

}  // namespace ladder::cpu
