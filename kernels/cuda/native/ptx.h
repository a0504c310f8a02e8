// The few instructions of a GPU that CUDA C++ has no name for, each as one function.
// kernels/cuda/on_cpu/ptx.h has the same functions for the CPU.
//
// A warp holds a small matrix in the registers of its 32 lanes: a fragment. With g = lane / 4 and
// t = lane % 4, a register of two 16-bit elements holds (the first in its low half):
//
//   a[0]: A[g][2t, 2t+1]     a[1]: A[g+8][2t, 2t+1]      A (16,16), rows x k
//   a[2]: A[g][2t+8, 2t+9]   a[3]: A[g+8][2t+8, 2t+9]
//   b[0]: B[2t, 2t+1][g]     b[1]: B[2t+8, 2t+9][g]      B (16,8), k x columns
//   d[0], d[1]: D[g][2t, 2t+1]   d[2], d[3]: D[g+8][2t, 2t+1]   D (16,8), in float
//
// (PTX ISA, "Matrix Fragments for mma.m16n8k16".)
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

namespace ladder::LADDER_CUDA {

/// D += A B on tensor cores: products exact, sums FP32. All lanes of the warp call it together.
/// T: __nv_bfloat16 or __half, the elements of A and B.
template <class T>
__device__ void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// No instruction. The compiler knows nothing of x from here on: what was computed from it is not
/// kept in registers, but computed again.
__device__ inline void forget(uint32_t& x) { asm volatile("" : "+r"(x)); }

/// The address of shared memory as instructions take it.
__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// Four matrices of 8 rows of 8 16-bit elements, from shared memory. Lane 8 i + j brings `row`,
/// the address of row j of matrix i, aligned to 16 bytes. Then r[i] is M_i[g][2t, 2t+1].
__device__ inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// The same, each matrix transposed: r[i] is M_i[2t, 2t+1][g].
__device__ inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Starts copying 16 bytes from global to shared memory, both aligned to 16; zeros if not `valid`
/// (`global` is then not read). They have arrived after cp_async_wait() in this thread, and after
/// a later barrier in others.
__device__ inline void cp_async_16(void* shared, const void* global, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)),
                 "r"(valid ? 16 : 0)
               : "memory");
}

/// Makes one group of the copies that this thread started since the last call.
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `Pending` of this thread's latest groups have not arrived.
template <int Pending>
__device__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// 2^x by the unit that computes it in one instruction: within 2^-22 of itself, and 0 below 2^-126.
/// exp2f() takes four instructions, expf() eight.
__device__ inline float exp2_quick(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x by one instruction, too: within 2^-23 of itself, and 0 below 2^-126. A division takes ten
/// instructions.
__device__ inline float reciprocal_quick(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace ladder::LADDER_CUDA
