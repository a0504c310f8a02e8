// Adam with L2 and AdamW: one pass over weights, gradients and both moments.
#include "kernels/cuda/adam_step.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// param, m, v, grad (n)
template <int W>
__global__ void update(float* param, float* m, float* v, const float* grad, int64_t n,
                       AdamMove move) {
  const int64_t i = thread_index() * W, count = n - i;
  if (count <= 0) return;
  Floats<W> w = load_part<W>(param + i, count), first = load_part<W>(m + i, count);
  Floats<W> second = load_part<W>(v + i, count);
  const Floats<W> g = load_part<W>(grad + i, count);
  for (int j = 0; j < W; ++j) adam_step(w.at[j], first.at[j], second.at[j], g.at[j], move);
  store_part<W>(param + i, w, count);
  store_part<W>(m + i, first, count);
  store_part<W>(v + i, second, count);
}

}  // namespace

void adamw_update(const Ctx& ctx, Tensor param, Tensor m, Tensor v, Tensor grad,
                  const AdamStep& step) {
  const int64_t n = check_shapes(Op::adamw_update, param, m, v, grad).R;
  dispatch_width<kWidth<float>>({param, m, v, grad}, [&]<int W>(Width<W>) {
    launch(ctx, update<W>, grid_over<W>(n), kThreads, 0, device_data<float>(param),
           device_data<float>(m), device_data<float>(v), device_data<float>(grad), n,
           AdamMove(step));
  });
}

}  // namespace ladder::LADDER_CUDA
