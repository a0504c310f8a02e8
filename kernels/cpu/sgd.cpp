// One step of SGD, with or without momentum.
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {

void sgd_update(const Ctx& ctx, Tensor param, Tensor velocity, Tensor grad, const SgdStep& step) {
  const int64_t n = check_shapes(Op::sgd_update, param, velocity, grad).R;
  float* w = param.data<float>();
  float* v = velocity ? velocity.data<float>() : nullptr;
  const float* g = grad.data<float>();
  const Vec lr = broadcast(step.lr);
  const Vec momentum = broadcast(step.momentum);
  parallel_for(ctx, n, kAlign, 1, [&](Range range) {
    for_vectors(range.begin, range.end, [&](int64_t i, auto io) {
      const Vec slope = io.load(g + i);
      Vec move = slope;
      if (v) {
        const Vec speed = hn::MulAdd(momentum, io.load(v + i), slope);
        io.store(speed, v + i);
        move = step.nesterov ? hn::MulAdd(momentum, speed, slope) : speed;
      }
      io.store(hn::NegMulAdd(lr, move, io.load(w + i)), w + i);
    });
  });
}

}  // namespace ladder::cpu
