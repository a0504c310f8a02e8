// One element of an Adam step, for 32-bit and 8-bit states.
#pragma once

#include <cuda_runtime.h>

#include "kernels/kernels.h"

namespace ladder::LADDER_CUDA {

/// Divides floats by one number, to the last bit, in three instructions rather than thirteen. A
/// double has more than twice the digits of a float, so the rounding of the product never decides
/// how the quotient is rounded. (It might if the quotient is below 2^-126; nothing here adds so
/// little.)
class Divisor {
 public:
  __host__ __device__ explicit Divisor(float by) : inverse_(1 / double{by}) {}
  __device__ float divide(float x) const { return static_cast<float>(x * inverse_); }

 private:
  double inverse_;
};

/// AdamStep, with its two corrections as divisors.
struct AdamMove {
  explicit AdamMove(const AdamStep& s)
      : step(s), correction1(s.correction1), correction2(s.correction2) {}
  AdamStep step;
  Divisor correction1, correction2;
};

/// Updates w, m and v with gradient g (arXiv 1412.6980, algorithm 1; decay as in arXiv 1711.05101).
/// The operations are those of kernels/ref/adam_step.h, and so are the bits.
__device__ inline void adam_step(float& w, float& m, float& v, float g, const AdamMove& move) {
  const AdamStep& step = move.step;
  if (step.decoupled)
    w -= step.lr * step.weight_decay * w;
  else
    g += step.weight_decay * w;
  m = step.beta1 * m + (1 - step.beta1) * g;
  v = step.beta2 * v + (1 - step.beta2) * g * g;
  w -= step.lr * move.correction1.divide(m) / (sqrtf(move.correction2.divide(v)) + step.eps);
}

}  // namespace ladder::LADDER_CUDA
