// The engine of attention on Hopper's tensor cores, for BF16 and heads of 64 channels. It is Mma
// (attention_mma.h) with two differences. Four warps, a team of 64 rows, multiply together. And the
// tensor cores read right factors themselves, once for 64 rows; Mma reads them once for 32, through
// registers. The registers that become free make room for more warps, which compute exponentials
// while others multiply.
#pragma once

#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/native/wgmma.h"

namespace ladder::LADDER_CUDA {

/// Multiplies on Hopper's tensor cores, four warps together.
template <int kWarps, int kPartnerRows, int kScoreColumns>
struct Wgmma : Mma<__nv_bfloat16, 64, 1, kWarps, kPartnerRows, kScoreColumns> {
  using T = __nv_bfloat16;
  using Base = Mma<T, 64, 1, kWarps, kPartnerRows, kScoreColumns>;
  using Base::kThreads, Base::kNeighbors, Base::kSlice, Base::kPartners;
  using typename Base::Four, typename Base::Scores, typename Base::Sums;
  static constexpr int kBlocks = 2;  ///< an SM holds
  static constexpr int kTeamRows = 64;
  static constexpr int kStride = 64;
  static_assert(kWarps % 4 == 0);

  static __device__ int team_row() { return warp_index() / 4 * kTeamRows; }

  template <int kPending>
  static __device__ void wait_for_copies() {
    cp_async_wait<kPending>();
    fence_shared_for_tensor_cores();
  }

  template <int kCount>
  static __device__ void copy(T* tile, const Rows<const T>& rows, int first) {
    constexpr int kCopies = 64 / kNeighbors, kStep = kThreads / kCopies;
    static_assert(kCount % kStep == 0 && kStep % 8 == 0);
    const int row = static_cast<int>(threadIdx.x) / kCopies;
    const int d = static_cast<int>(threadIdx.x) % kCopies * kNeighbors;
    const T* from = rows[first + row] + d;
    T* to = tile + swizzled(row, d);
    const int64_t step = static_cast<int64_t>(kStep) * rows.stride;
#pragma unroll
    for (int i = 0; i < kCount; i += kStep, from += step)
      cp_async_16(to + i * kStride, from, first + row + i < rows.count);
  }

  /// The rows of a team stay in their tile. If they were in registers, as with Mma, ptxas 13.0
  /// would give these registers to the weights, too, in the loop over partners.
  using Owned = const T*;
  static __device__ Owned owned(const T* tile) { return tile + team_row() * kStride; }

  static __device__ void start_scores(Scores& s, Owned owned, const T* partners) {
    const uint32_t left = describe(owned), right = describe(partners);
    begin_products();
#pragma unroll
    for (int d = 0; d < 64; d += 16)
      start_product_of_rows(s.x[0], left + d / kNeighbors, right + d / kNeighbors, d > 0);
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
      start_product(sums.x[0], left[n / 16].m, right + n * kStride / kNeighbors);
    commit_products();
  }

  template <int kPending, class Part>
  static __device__ void wait(Part& part) {
    wait_for_products<kPending>(part.x[0]);
  }
};

}  // namespace ladder::LADDER_CUDA
