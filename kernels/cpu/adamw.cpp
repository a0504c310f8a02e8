// One step of Adam or AdamW: one pass over weights, gradients and both moments.
#include "kernels/cpu/adamw.h"

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/table.h"
#include "kernels/shapes.h"

namespace ladder::cpu {

void adamw_update(const Ctx& ctx, Tensor param, Tensor m, Tensor v, Tensor grad,
                  const AdamStep& step) {
  const int64_t n = check_shapes(Op::adamw_update, param, m, v, grad).R;
  float* w = param.data<float>();
  float* first = m.data<float>();
  float* second = v.data<float>();
  const float* g = grad.data<float>();
  parallel_for(ctx, n, kAlign, 2, [&](Range range) {
    for_vectors(range.begin, range.end, [&](int64_t i, auto io) {
      const AdamVectors next =
          adam_step({.w = io.load(w + i), .m = io.load(first + i), .v = io.load(second + i)},
                    io.load(g + i), step);
      io.store(next.w, w + i);
      io.store(next.m, first + i);
      io.store(next.v, second + i);
    });
  });
}

}  // namespace ladder::cpu
