// The engine of attention on tensor cores, for BF16 and F16: factors of 16 bits, sums in FP32.
//
// A warp owns one or two strips of 16 rows, whose factors stay in its registers. ptx.h says which
// lane holds which element of a factor and of a sum. Two sums (16 x 8) side by side are spread over
// the lanes as a left factor (16 x 16) is. So P = exp(S - lse), rounded to 16 bits, can be the left
// factor of P V without a way through memory. Every attention on tensor cores rounds each weight
// once in this way.
//
// Tiles in shared memory hold rows of q, k, v or dout. ldmatrix reads a factor from a tile as four
// 8 x 8 matrices: lane 8 i + j says where row j of matrix i lies. An SM reads 128 bytes of shared
// memory a clock, which limits the kernel as its products do. So two strips share every right
// factor, and no left factor is read twice.
//
//   left factor, 16 x 16; its rows are rows of the tile             m0 m2
//                                                                   m1 m3
//   right factors of S = q k^T, two of 16 x 8; their columns are    m0 m1   m0 m1: the first
//   rows of the tile                                                m2 m3
//   right factors of P v, two of 16 x 8; their rows are rows of     m0 m2   m0 m1: the first
//   the tile, so ldmatrix transposes each matrix                    m1 m3
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/warp.h"
#include "ptx.h"

namespace ladder::LADDER_CUDA {

/// Multiplies on tensor cores, each warp by itself. kStrips: of a warp. kPartnerRows: of a tile of
/// partners. kScoreColumns: how many of them a warp takes at a time.
template <class T, int kHS, int kStrips, int kWarps, int kPartnerRows, int kScoreColumns>
struct Mma : PowersOfTwo, InOrder {
  using Element = T;
  using Cell = T;
  static constexpr int kThreads = kWarp * kWarps;
  static constexpr int kRows = 2 * kStrips;  ///< rows of which a thread holds elements
  static constexpr int kWarpRows = 16 * kStrips;
  static constexpr int kTeamRows = kWarpRows;  ///< a team is a warp
  static constexpr int kOwned = kWarps * kWarpRows;
  static constexpr int kPartners = kPartnerRows;
  static constexpr int kSlice = kScoreColumns;  ///< partners whose scores a warp holds at a time
  /// From row to row of a tile: 16 bytes more than a row. So the eight rows of an 8 x 8 matrix
  /// start 16 bytes apart modulo 128, and no two lanes ask for the same banks.
  static constexpr int kStride = kHS + 8;
  static constexpr int kExchange = 0;
  static constexpr SecondStage kSecondStage = SecondStage::Behind;
  static constexpr int kBlocks = 256 / kThreads;  ///< an SM holds: a thread has 255 registers
  static constexpr int kNeighbors = 8;            ///< neighbors of a row in one access of 16 bytes

  /// A thread's elements of the rows that its block owns, `kWide` columns.
  template <int kWide>
  struct Part {
    static constexpr int kColumns = kWide / 4;
    float x[kStrips][kWide / 8][4];

    __device__ float& operator()(int r, int c) { return x[r / 2][c / 2][r % 2 * 2 + c % 2]; }
  };
  using Scores = Part<kSlice>;
  using Sums = Part<kHS>;

  static __device__ int first_row() { return warp_index() * kWarpRows; }
  static __device__ int team_row() { return first_row(); }
  static __device__ int row(int r) { return first_row() + 8 * r + lane_index() / 4; }
  static __device__ int column(int c) { return c / 2 * 8 + lane_index() % 4 * 2 + c % 2; }

  /// The largest of a row, from the largest of each lane's columns. Four lanes share a row.
  static __device__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
    return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
  }
  static __device__ float row_sum(float x) {
    x += __shfl_xor_sync(kAllLanes, x, 1);
    return x + __shfl_xor_sync(kAllLanes, x, 2);
  }

  /// Starts to copy kCount rows from row `first` on. Rows past the end become zeros, because a
  /// weight of zero would not keep out a NaN.
  template <int kCount>
  static __device__ void copy(T* tile, const HeadRows<const T>& rows, int first) {
    constexpr int kCopies = kHS / kNeighbors, kStep = kThreads / kCopies;
    static_assert(kCount % kStep == 0);
    // A thread keeps its columns. So its addresses move by a constant from copy to copy.
    const int row = static_cast<int>(threadIdx.x) / kCopies;
    const int d = static_cast<int>(threadIdx.x) % kCopies * kNeighbors;
    const T* from = rows[first + row] + d;
    const int64_t step = static_cast<int64_t>(kStep) * rows.stride;
#pragma unroll
    for (int i = 0; i < kCount; i += kStep, from += step)
      cp_async_16(tile + (row + i) * kStride + d, from, first + row + i < rows.count);
  }

  /// Four 8 x 8 matrices: a left factor, or two right factors.
  struct Four {
    uint32_t m[4];
  };
  /// The rows of a warp as left factors.
  struct Owned {
    Four at[kStrips][kHS / 16];
  };
  static __device__ Owned owned(const T* tile) {
    Owned rows;
#pragma unroll
    for (int i = 0; i < kStrips; ++i)
#pragma unroll
      for (int d = 0; d < kHS; d += 16) rows.at[i][d / 16] = left_at(tile, first_row() + 16 * i, d);
    return rows;
  }

  /// owned partners^T: a sum over d. `partners`: the first row of kSlice in a tile.
  static __device__ void start_scores(Scores& s, const Owned& owned, const T* partners) {
    s = {};
#pragma unroll
    for (int d = 0; d < kHS; d += 16)
#pragma unroll
      for (int n = 0; n < kSlice; n += 16) {
        const Four right = right_of_scores(partners, n, d);
#pragma unroll
        for (int i = 0; i < kStrips; ++i) multiply(&s.x[i][n / 8], owned.at[i][d / 16], right);
      }
  }

  /// sums += weights partners: a sum over the partners, ascending. Weights are rounded to T.
  static __device__ void start_accumulate(Sums& sums, const Scores& weights, const T* partners,
                                          T*) {
#pragma unroll
    for (int n = 0; n < kSlice; n += 16) {
      Four left[kStrips];
#pragma unroll
      for (int i = 0; i < kStrips; ++i) left[i] = rounded(&weights.x[i][n / 8]);
#pragma unroll
      for (int d = 0; d < kHS; d += 16) {
        const Four right = right_of_weights(partners, n, d);
#pragma unroll
        for (int i = 0; i < kStrips; ++i) multiply(&sums.x[i][d / 8], left[i], right);
      }
    }
  }

  /// out[first + row] = result(r, sum), rounded once.
  template <class To, class F>
  static __device__ void write(const HeadRows<To>& out, int first, Sums& sums, F&& result) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int token = first + row(r);
      if (token >= out.count) continue;
#pragma unroll
      for (int c = 0; c < Sums::kColumns; c += 2)
        store<2>(out[token] + column(c), {{result(r, sums(r, c)), result(r, sums(r, c + 1))}});
    }
  }

 protected:
  /// Two sums side by side += left times two right factors.
  static __device__ void multiply(float (*sums)[4], const Four& left, const Four& right) {
    mma_16x8x16<T>(sums[0], left.m, {right.m[0], right.m[1]});
    mma_16x8x16<T>(sums[1], left.m, {right.m[2], right.m[3]});
  }

  static __device__ Four left_at(const T* tile, int row, int d) {
    Four four;
    const int lane = lane_index();
    ldmatrix_x4(four.m, tile + (row + lane % 16) * kStride + d + lane / 16 * 8);
    return four;
  }
  static __device__ Four right_of_scores(const T* tile, int row, int d) {
    Four four;
    const int lane = lane_index();
    ldmatrix_x4(four.m, tile + (row + lane / 16 * 8 + lane % 8) * kStride + d + lane / 8 % 2 * 8);
    return four;
  }
  static __device__ Four right_of_weights(const T* tile, int row, int d) {
    Four four;
    const int lane = lane_index();
    ldmatrix_x4_trans(four.m, tile + (row + lane % 16) * kStride + d + lane / 16 * 8);
    return four;
  }

  /// Two sums side by side as a left factor.
  static __device__ Four rounded(const float (*sums)[4]) {
    return {{pair(sums[0][0], sums[0][1]), pair(sums[0][2], sums[0][3]),
             pair(sums[1][0], sums[1][1]), pair(sums[1][2], sums[1][3])}};
  }
  static __device__ uint32_t pair(float low, float high) {
    const auto both = [&] {
      if constexpr (std::is_same_v<T, __half>)
        return __floats2half2_rn(low, high);
      else
        return __floats2bfloat162_rn(low, high);
    }();
    uint32_t bits;
    std::memcpy(&bits, &both, sizeof(bits));
    return bits;
  }
};

}  // namespace ladder::LADDER_CUDA
