// Stand-in for CUDA's header: bfloat16, rounded as kernels/narrow.h rounds.
#pragma once

#include <cuda_runtime.h>

#include "kernels/narrow.h"

namespace ladder::on_cpu {

struct __nv_bfloat16 {
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline float __bfloat162float(__nv_bfloat16 h) { return widen(kBf16, h.bits); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  return {static_cast<uint16_t>(narrow(kBf16, x, Overflow::ToInfinity))};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

}  // namespace ladder::on_cpu
