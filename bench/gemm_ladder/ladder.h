// The rungs of the ladder: one matrix product, written six times, each time with one idea more.
//
// All compute C = A B^T, the product of a linear layer (A its input, B its weight as
// torch.nn.Linear keeps it): C[m,n] = sum_k A[m,k] B[n,k], row-major FP32. They add in different
// orders, so their last bits differ; kernels/cpu/gemm/gemm.cpp, which is the rung above the last,
// fixes the order as docs/same_bits.md wants it.
#pragma once

#include <cstdint>

#include <hwy/aligned_allocator.h>

namespace ladder::bench {

struct Matrices {
  int64_t M, N, K;
  const float* a;  ///< (M,K)
  const float* b;  ///< (N,K)
  float* c;        ///< (M,N), overwritten
};

void naive(const Matrices& x);
void reordered(const Matrices& x);
void blocked(const Matrices& x);
/// M and N at least as large as a tile (12 x 32 with AVX-512, 6 x 16 with AVX2).
void register_tiled(const Matrices& x);
void packed(const Matrices& x);
void threaded(const Matrices& x, int threads);

/// Memory that starts with a cache line. A vector of 32 bytes in an array that starts anywhere
/// else lies across two lines every other time, and each such load is two.
using Floats = hwy::AlignedFreeUniquePtr<float[]>;
inline Floats floats(int64_t count) {
  return hwy::AllocateAligned<float>(static_cast<size_t>(count));
}

/// (K,N) from (N,K): for the rungs whose inner loop runs along n.
Floats transposed(const float* b, int64_t N, int64_t K);

}  // namespace ladder::bench
