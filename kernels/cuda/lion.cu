// Lion: every weight moves by the same length; a sign gives the direction.
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// 1, -1 or 0; NaN for NaN.
__device__ float sign_of(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }

/// param, m, grad (n)
template <int W>
__global__ void update(float* param, float* m, const float* grad, int64_t n, LionStep step) {
  const int64_t i = thread_index() * W, count = n - i;
  if (count <= 0) return;
  Floats<W> w = load_part<W>(param + i, count), moment = load_part<W>(m + i, count);
  const Floats<W> g = load_part<W>(grad + i, count);
  for (int j = 0; j < W; ++j) {
    const float mixed = step.beta1 * moment.at[j] + (1 - step.beta1) * g.at[j];
    w.at[j] -= step.lr * (sign_of(mixed) + step.weight_decay * w.at[j]);
    moment.at[j] = step.beta2 * moment.at[j] + (1 - step.beta2) * g.at[j];
  }
  store_part<W>(param + i, w, count);
  store_part<W>(m + i, moment, count);
}

}  // namespace

void lion_update(const Ctx& ctx, Tensor param, Tensor m, Tensor grad, const LionStep& step) {
  const int64_t n = check_shapes(Op::lion_update, param, m, grad).R;
  dispatch_width<kWidth<float>>({param, m, grad}, [&]<int W>(Width<W>) {
    launch(ctx, update<W>, grid_over<W>(n), kThreads, 0, device_data<float>(param),
           device_data<float>(m), device_data<float>(grad), n, step);
  });
}

}  // namespace ladder::LADDER_CUDA
