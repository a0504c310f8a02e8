// One element of an Adam step, shared by the 32-bit and the 8-bit states.
#pragma once

#include <cuda_runtime.h>

#include "kernels/kernels.h"

namespace ladder::LADDER_CUDA {

/// Moves w, m and v by gradient g (arXiv 1412.6980, algorithm 1; decay as in arXiv 1711.05101), in
/// the operations of kernels/ref/adam_step.h, so that bits are its.
__device__ inline void adam_step(float& w, float& m, float& v, float g, const AdamStep& step) {
  if (step.decoupled)
    w -= step.lr * step.weight_decay * w;
  else
    g += step.weight_decay * w;
  m = step.beta1 * m + (1 - step.beta1) * g;
  v = step.beta2 * v + (1 - step.beta2) * g * g;
  w -= step.lr * (m / step.correction1) / (sqrtf(v / step.correction2) + step.eps);
}

}  // namespace ladder::LADDER_CUDA
