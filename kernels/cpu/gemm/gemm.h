// The one matrix product behind linear layers.
//
// C[m,n] (+)= sum_k A[m,k] B[n,k] (+ bias[n]). The sum over k is the balanced tree of
// kernels/tree.h over leaves. Inside a leaf, k ascends with fused multiply-adds from -0 (but see
// bf16.h). A leaf is one run of neighboring k, or two if it is a folded leaf of tokens. The bits of
// an element depend on its own sum alone: not on M, N, tiles or threads.
//
// Narrow factors are widened when they are packed; if the CPU can, it multiplies them in pairs
// (bf16.h). Sums are FP32. A narrow C is rounded once, when its sum (and bias) is complete.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/kernels.h"
#include "kernels/token_leaves.h"

namespace ladder {

/// One factor: element (i, k) lies at ptr[i * stride_i + k * stride_k]; one stride is 1.
struct Factor {
  const void* ptr = nullptr;
  Dtype dtype = Dtype::F32;  ///< F32, BF16, F16, E4M3, E5M2
  int64_t stride_i = 0;
  int64_t stride_k = 1;
};

/// A leaf of a sum in which many leaves are absent (SparseTreeSum in kernels/tree.h).
struct SparseLeaf {
  int64_t index;  ///< in the tree
  Fold k;         ///< its values of k: two runs, one of which may be empty
};

/// C (+)= A B^T: what gemm() computes.
struct Product {
  int64_t M = 0, N = 0, K = 0;
  int64_t leaves = 1;        ///< of K: see leaf() in kernels/tree.h
  int64_t token_leaves = 0;  ///< not 0: K is tokens, and each sequence has so many leaves, folded
                             ///< (fold() in kernels/token_leaves.h); it divides `leaves`
  std::span<const SparseLeaf>
      present{};               ///< if not empty: the leaves of K that are present, ascending
  Factor a;                    ///< (M,K)
  Factor b;                    ///< (N,K)
  void* c = nullptr;           ///< (M,N), rows stride_c apart
  Dtype c_dtype = Dtype::F32;  ///< F32, BF16, F16
  int64_t stride_c = 0;
  const void* bias = nullptr;  ///< (N), of C's dtype, or null; only where C is written
  float factor = 1;            ///< a power of two that the sum is multiplied by (FP8)
  Into into = Into::Write;
  bool for_later = false;  ///< C is read much later, as gradients of parameters are
};

/// On all threads of ctx, or on one if the product is small. Each thread computes its own rectangle
/// of C, with its own scratch.
void gemm(const Ctx& ctx, const Product& product);
/// Several products at once. None may read or write what another writes. Threads wait once for all.
void gemm(const Ctx& ctx, std::span<const Product> products);

}  // namespace ladder
