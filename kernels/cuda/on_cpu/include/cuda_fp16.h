// Stand-in for CUDA's header: IEEE half precision, rounded as kernels/narrow.h rounds.
#pragma once

#include <cuda_runtime.h>

#include "kernels/narrow.h"

namespace ladder::on_cpu {

struct __half {
  uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};

inline float __half2float(__half h) { return widen(kF16, h.bits); }
inline __half __float2half_rn(float x) {
  return {static_cast<uint16_t>(narrow(kF16, x, Overflow::ToInfinity))};
}
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}

}  // namespace ladder::on_cpu
