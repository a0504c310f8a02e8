// SGD, with or without momentum: one pass over weights, velocities and gradients.
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// param, grad (n); velocity (n) or null
template <int W>
__global__ void update(float* param, float* velocity, const float* grad, int64_t n, SgdStep step) {
  const int64_t i = thread_index() * W, count = n - i;
  if (count <= 0) return;
  Floats<W> w = load_part<W>(param + i, count), move = load_part<W>(grad + i, count);
  if (velocity) {
    Floats<W> v = load_part<W>(velocity + i, count);
    for (int j = 0; j < W; ++j) {
      v.at[j] = step.momentum * v.at[j] + move.at[j];
      move.at[j] = step.nesterov ? move.at[j] + step.momentum * v.at[j] : v.at[j];
    }
    store_part<W>(velocity + i, v, count);
  }
  for (int j = 0; j < W; ++j) w.at[j] -= step.lr * move.at[j];
  store_part<W>(param + i, w, count);
}

}  // namespace

void sgd_update(const Ctx& ctx, Tensor param, Tensor velocity, Tensor grad, const SgdStep& step) {
  const int64_t n = check_shapes(Op::sgd_update, param, velocity, grad).R;
  dispatch_width<kWidth<float>>({param, velocity, grad}, [&]<int W>(Width<W>) {
    launch(ctx, update<W>, grid_over<W>(n), kThreads, 0, device_data<float>(param),
           device_data<float>(velocity), device_data<float>(grad), n, step);
  });
}

}  // namespace ladder::LADDER_CUDA
