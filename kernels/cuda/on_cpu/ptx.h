// The few instructions of a GPU that CUDA C++ has no name for, computed on the CPU.
// kernels/cuda/native/ptx.h says what they do and how the lanes of a warp share a matrix.
#pragma once

#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "kernels/cuda/on_cpu/tensor_core.h"

namespace ladder::LADDER_CUDA {

using on_cpu::Where;

template <class T>
void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                 Where where = Where::current()) {
  on_cpu::multiply_fragments(std::is_same_v<T, __half> ? kF16 : kBf16, d, a, b, where);
}

inline void forget(uint32_t&) {}

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, Where where = Where::current()) {
  on_cpu::load_matrices(r, row, false, where);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, Where where = Where::current()) {
  on_cpu::load_matrices(r, row, true, where);
}

inline void cp_async_16(void* shared, const void* global, bool valid = true) {
  on_cpu::start_copy(shared, valid ? global : nullptr);
}
inline void cp_async_commit() { on_cpu::close_copy_group(); }
template <int Pending>
void cp_async_wait() {
  on_cpu::land_copies(Pending);
}

/// A float that a GPU takes for 0 where `ftz` is part of an instruction's name.
inline float flushed(float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
inline float exp2_quick(float x) { return flushed(std::exp2(x)); }
inline float reciprocal_quick(float x) { return flushed(1 / flushed(x)); }

}  // namespace ladder::LADDER_CUDA
