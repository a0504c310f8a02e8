// Faults that check_ptx.py must find, each in a kernel beside a twin without it.
#include "kernels/narrow.h"

namespace ladder {
namespace {

struct OfHost {
  static constexpr Format kFormat = kE4M3;
};
/// In a kernel itself nvcc refuses the name; in a function of host and device it says nothing.
constexpr float by_reference(uint32_t code) { return widen(OfHost::kFormat, code); }
constexpr float by_copy(uint32_t code) {
  constexpr Format kFormat = OfHost::kFormat;
  return widen(kFormat, code);
}

}  // namespace

extern "C" __global__ void bad_reference(float* out, uint32_t code) { *out = by_reference(code); }
extern "C" __global__ void copy(float* out, uint32_t code) { *out = by_copy(code); }

extern "C" __global__ void bad_choice(float* x, float l) { *x *= l == 0 ? -0.0f : 1.0f; }
extern "C" __global__ void choice(float* x, float l) {
  if (l == 0) *x = -0.0f;
}
extern "C" __global__ void choice_by_integers(float* x, int l) { *x *= l == 0 ? -0.0f : 1.0f; }

}  // namespace ladder
