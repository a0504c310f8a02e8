// The engine of attention on Hopper's tensor cores, for BF16 and heads of 64 or 128 channels. It is
// Mma (attention_mma.h) with two differences. Four warps, a team of 64 rows, multiply together. And
// the tensor cores read right factors themselves, once for 64 rows; Mma reads them once for 32,
// through registers. With 64 channels the registers that become free make room for more warps,
// which compute exponentials while others multiply.
#pragma once

#include "kernels/cuda/attention_mma.h"
#include "wgmma.h"

namespace ladder::LADDER_CUDA {

/// Where element d (a multiple of 8) of row `row` lies in a square of 64 columns, in elements.
__device__ inline int swizzled(int row, int d) { return row * 64 + (d ^ row % 8 * 8); }

/// Multiplies on Hopper's tensor cores, four warps together.
///
/// A tile in shared memory is cut into squares of 64 rows and 64 channels, the form that wgmma.h
/// multiplies. The squares of the same rows follow one another.
template <int kHS, int kWarps, int kPartnerRows>
struct Wgmma : Mma<__nv_bfloat16, kHS, 1, kWarps, kPartnerRows, 64> {
  using T = __nv_bfloat16;
  using Base = Mma<T, kHS, 1, kWarps, kPartnerRows, 64>;
  using Base::kThreads, Base::kNeighbors, Base::kSlice, Base::kPartners;
  using typename Base::Four, typename Base::Scores, typename Base::Sums;
  /// Blocks that an SM holds. Sums of 128 channels take 64 registers of a thread.
  static constexpr int kBlocks = kHS * kWarps > 512 ? 1 : 2;
  static constexpr int kTeamRows = 64;
  static constexpr int kStride = kHS;
  static constexpr int kSquare = 64 * 64;  ///< elements
  static_assert(kHS % 64 == 0 && kWarps % 4 == 0 && kPartners % 64 == 0);

  static __device__ int team_row() { return warp_index() / 4 * kTeamRows; }

  template <int kPending>
  static __device__ void wait_for_copies() {
    cp_async_wait<kPending>();
    fence_shared_for_tensor_cores();
  }

  template <int kCount>
  static __device__ void copy(T* tile, const HeadRows<const T>& rows, int first) {
    constexpr int kCopies = kHS / kNeighbors, kStep = kThreads / kCopies;
    // A thread's rows are kStep apart. So they lie at one place of a group of eight rows, and their
    // pieces are swapped alike.
    static_assert(kCount % kStep == 0 && kStep % 8 == 0 && 64 % kStep == 0);
    const int row = static_cast<int>(threadIdx.x) / kCopies;
    const int d = static_cast<int>(threadIdx.x) % kCopies * kNeighbors;
    const T* from = rows[first + row] + d;
    T* to = tile + d / 64 * kSquare + swizzled(row, d % 64);
    const int64_t step = static_cast<int64_t>(kStep) * rows.stride;
#pragma unroll
    for (int i = 0; i < kCount; i += kStep, from += step)
      cp_async_16(to + i / 64 * 64 * kHS + i % 64 * 64, from, first + row + i < rows.count);
  }

  /// The rows of a team stay in their tile. If they were in registers, as with Mma, ptxas 13.0
  /// would give these registers to the weights, too, in the loop over partners.
  using Owned = const T*;
  static __device__ Owned owned(const T* tile) { return tile + team_row() * kStride; }

  static __device__ void start_scores(Scores& s, Owned owned, const T* partners) {
    const uint32_t left = describe(owned), right = describe(partners);
    begin_products();
#pragma unroll
    for (int d = 0; d < kHS; d += 16) {
      const int at = (d / 64 * kSquare + d % 64) / kNeighbors;
      start_product_of_rows(s.x[0], left + at, right + at, d > 0);
    }
    commit_products();
  }

  static __device__ void start_accumulate(Sums& sums, const Scores& weights, const T* partners,
                                          T*) {
    Four left[kSlice / 16];
#pragma unroll
    for (int n = 0; n < kSlice; n += 16) left[n / 16] = Base::rounded(&weights.x[0][n / 8]);
    const uint32_t right = describe(partners);
    begin_products();
#pragma unroll
    for (int n = 0; n < kSlice; n += 16)
#pragma unroll
      for (int d = 0; d < kHS; d += 64)
        start_product(eight(&sums.x[0][d / 8]), left[n / 16].m,
                      right + (d / 64 * kSquare + n * 64) / kNeighbors);
    commit_products();
  }

  template <int kPending, class Part>
  static __device__ void wait(Part& part) {
    wait_for_products<kPending>(part.x[0]);
  }

 private:
  /// The sums of 64 columns.
  using Eight = float[8][4];
  static __device__ Eight& eight(float (*sums)[4]) { return *reinterpret_cast<Eight*>(sums); }
};

}  // namespace ladder::LADDER_CUDA
