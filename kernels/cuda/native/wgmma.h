// Products of a warpgroup: four warps that multiply together, on Hopper's tensor cores (sm_90a).
//
// D (64,64) += A (64,16) B (16,64). Each warp has 16 of the rows of D, spread over its lanes as
// mma_16x8x16 has them (ptx.h). A lies in registers in the same way, or in shared memory. The
// tensor cores read B from shared memory, once for all four warps.
//
// A square in shared memory has 64 rows of 64 elements, 128 bytes. The eight pieces of 16 bytes in
// a row are swapped: piece p of row r lies where p ^ (r % 8) would be. So one column of eight
// neighboring rows lies in different banks. The square starts at a multiple of 1024 bytes. (PTX
// ISA, "Asynchronous Warpgroup Level Matrix Instructions", 128-byte swizzling.)
//
// kernels/cuda/on_cpu/wgmma.h has the same functions for the CPU.
#pragma once

#include "ptx.h"

namespace ladder::LADDER_CUDA {

/// Where a factor lies: the lower half of a matrix descriptor. Its addresses count 16 bytes, so a
/// step of 16 bytes adds 1. The factor is 64 rows of a square, 16 elements of each from `first` on,
/// or 16 whole rows.
__device__ inline uint32_t describe(const void* first) {
  return 1u << 16 | (shared_address(first) & 0x3FFFF) >> 4;
}

/// After the next barrier, tensor cores see what this thread has written to shared memory.
__device__ inline void fence_shared_for_tensor_cores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Called before a product if registers that it reads or adds to have been written since the last.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Makes one group of all products started since the last call.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits until at most kPending of the latest groups are unfinished. The compiler moves no read of
/// `sums` to before the wait.
template <int kPending, int N>
__device__ void wait_for_products(float (&sums)[N][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+f"(sums[i][j])::"memory");
}

#define LADDER_SUMS                                                                              \
  LADDER_QUAD(d[0]), LADDER_QUAD(d[1]), LADDER_QUAD(d[2]), LADDER_QUAD(d[3]), LADDER_QUAD(d[4]), \
      LADDER_QUAD(d[5]), LADDER_QUAD(d[6]), LADDER_QUAD(d[7])
#define LADDER_QUAD(x) "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
#define LADDER_32                                                                               \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

/// Starts D = A B^T, or D += A B^T if `add`: 64 rows of one square times 64 rows of another, 16
/// elements of each. The upper half of a descriptor says that groups of eight rows are 1024 bytes
/// apart.
__device__ inline void start_product_of_rows(float (&d)[8][4], uint32_t a, uint32_t b, bool add) {
  asm volatile(
      "{.reg .pred add; .reg .b64 a, b;\n"
      "setp.ne.b32 add, %34, 0;\n"
      "mov.b64 a, {%32, 0x40000040}; mov.b64 b, {%33, 0x40000040};\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LADDER_32 ", a, b, add, 1, 1, 0, 0;}"
      : LADDER_SUMS
      : "r"(a), "r"(b), "r"(static_cast<int>(add)));
}

/// Starts D += A B. A lies in registers, B is 16 rows of a square.
__device__ inline void start_product(float (&d)[8][4], const uint32_t (&a)[4], uint32_t b) {
  asm volatile(
      "{.reg .b64 b;\n"
      "mov.b64 b, {%36, 0x40000040};\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LADDER_32
      ", {%32, %33, %34, %35}, b, 1, 1, 1, 1;}"
      : LADDER_SUMS
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
#undef LADDER_32
#undef LADDER_QUAD
#undef LADDER_SUMS

}  // namespace ladder::LADDER_CUDA
