// Stand-in for CUDA's header: two numbers to FP8 at once, rounded as kernels/narrow.h rounds.
#pragma once

#include <cuda_runtime.h>

#include "kernels/narrow.h"

namespace ladder::on_cpu {

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

/// The code of x in the low byte.
inline uint16_t __nv_cvt_float2_to_fp8x2(float2 pair, __nv_saturation_t saturation,
                                         __nv_fp8_interpretation_t kind) {
  const Format& format = kind == __NV_E4M3 ? kE4M3 : kE5M2;
  const Overflow overflow =
      saturation == __NV_SATFINITE ? Overflow::Saturate : Overflow::ToInfinity;
  return static_cast<uint16_t>(narrow(format, pair.x, overflow) | narrow(format, pair.y, overflow)
                                                                      << 8);
}

}  // namespace ladder::on_cpu
