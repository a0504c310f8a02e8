// The engine of attention with plain multiply-adds in FP32: for F32, and for heads that tensor
// cores do not take. 16 x 16 threads hold 64 rows. Each has 4 neighboring rows and every 16th
// column.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/warp.h"

namespace ladder::LADDER_CUDA {

/// kPad is at least HS. Tiles are filled up with zeros.
template <class T, int kPad>
struct Fma : NaturalExponents, InOrder {
  using Element = T;
  using Cell = float;
  static constexpr int kThreads = 256;
  static constexpr int kBlocks = 1;    ///< thread blocks that an SM must hold
  static constexpr int kRows = 4;      ///< rows of which a thread holds elements
  static constexpr int kTeamRows = 8;  ///< of a warp; each half holds 4
  static constexpr int kOwned = 64;
  static constexpr int kPartners = 32;
  static constexpr int kSlice =
      kPartners;  ///< partners whose scores a thread block holds at a time
  /// From row to row of a tile. It is odd, so the same d of 16 rows lies in 16 banks.
  static constexpr int kStride = kPad + 1;
  static constexpr int kWeightStride = kPartners + 1;
  static constexpr int kExchange = kOwned * kWeightStride;
  static constexpr SecondStage kSecondStage = SecondStage::Behind;
  static constexpr int kNeighbors =
      1;  ///< neighbors of a row in one access: rows may begin anywhere

  /// A thread's elements of the rows that its block owns, `kWide` columns.
  template <int kWide>
  struct Part {
    static constexpr int kColumns = kWide / 16;
    float x[kRows][kColumns];

    __device__ float& operator()(int r, int c) { return x[r][c]; }
  };
  using Scores = Part<kPartners>;
  using Sums = Part<kPad>;

  static __device__ int row(int r) { return static_cast<int>(threadIdx.x) / 16 * kRows + r; }
  static __device__ int column(int c) { return static_cast<int>(threadIdx.x) % 16 + 16 * c; }
  static __device__ int team_row() { return warp_index() * kTeamRows; }

  /// The largest of a row, from the largest of each thread's columns. 16 threads share a row.
  static __device__ float row_max(float x) {
    for (int other = 8; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, other));
    return x;
  }
  static __device__ float row_sum(float x) {
    for (int other = 8; other > 0; other /= 2) x += __shfl_xor_sync(kAllLanes, x, other);
    return x;
  }

  /// Copies kCount rows from row `first` on. Rows past the end become zeros, because a weight of
  /// zero would not keep out a NaN.
  template <int kCount>
  static __device__ void copy(float* tile, const HeadRows<const T>& rows, int first) {
    for (int i = static_cast<int>(threadIdx.x); i < kCount * kPad; i += kThreads) {
      const int row = i / kPad, d = i % kPad;
      const bool inside = first + row < rows.count && d < rows.width;
      tile[row * kStride + d] = inside ? to_float(rows[first + row][d]) : 0.0f;
    }
  }

  /// The rows that a block owns, as factors: they stay in their tile.
  using Owned = const float*;
  static __device__ Owned owned(const float* tile) { return tile; }

  /// owned partners^T: a sum over d, ascending.
  static __device__ void start_scores(Scores& s, Owned owned, const float* partners) {
    s = {};
#pragma unroll 4
    for (int d = 0; d < kPad; ++d) add_outer(s, owned + d, kStride, partners + d, kStride);
  }

  /// sums += weights partners: a sum over the partners, ascending. Half a warp holds whole rows
  /// of weights. It passes them round through its own part of shared memory.
  static __device__ void start_accumulate(Sums& sums, Scores& weights, const float* partners,
                                          float* exchange) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < Scores::kColumns; ++c)
        exchange[row(r) * kWeightStride + column(c)] = weights(r, c);
    __syncwarp();
#pragma unroll 4
    for (int u = 0; u < kPartners; ++u)
      add_outer(sums, exchange + u, kWeightStride, partners + u * kStride, 1);
    __syncwarp();
  }

  /// out[first + row] = result(r, sum), rounded once.
  template <class To, class F>
  static __device__ void write(const HeadRows<To>& out, int first, Sums& sums, F&& result) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int token = first + row(r);
      if (token >= out.count) continue;
#pragma unroll
      for (int c = 0; c < Sums::kColumns; ++c)
        if (column(c) < out.width) out[token][column(c)] = from_float<To>(result(r, sums(r, c)));
    }
  }

 private:
  /// part += a b^T. Element `row` of column a is a[row a_stride]; row b^T has b[column b_stride].
  template <class Part>
  static __device__ void add_outer(Part& part, const float* a, int a_stride, const float* b,
                                   int b_stride) {
    float left[kRows], right[Part::kColumns];
#pragma unroll
    for (int r = 0; r < kRows; ++r) left[r] = a[row(r) * a_stride];
#pragma unroll
    for (int c = 0; c < Part::kColumns; ++c) right[c] = b[column(c) * b_stride];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < Part::kColumns; ++c) part(r, c) = fmaf(left[r], right[c], part(r, c));
  }
};

/// The same in less shared memory: one stage of partners, and no exchange.
template <class T, int kPad>
struct SmallFma : Fma<T, kPad> {
  using Base = Fma<T, kPad>;
  using Base::kRows, Base::kStride, Base::column;
  using typename Base::Scores, typename Base::Sums;
  static constexpr int kExchange = 0;
  static constexpr SecondStage kSecondStage = SecondStage::None;

  /// The same sum. Each lane of half a warp in turn passes its weights to the others.
  static __device__ void start_accumulate(Sums& sums, Scores& weights, const float* partners,
                                          float*) {
#pragma unroll
    for (int c = 0; c < Scores::kColumns; ++c)
#pragma unroll 4
      for (int lane = 0; lane < 16; ++lane, partners += kStride) {
        float left[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) left[r] = __shfl_sync(kAllLanes, weights(r, c), lane, 16);
#pragma unroll
        for (int d = 0; d < Sums::kColumns; ++d) {
          const float right = partners[column(d)];
#pragma unroll
          for (int r = 0; r < kRows; ++r) sums(r, d) = fmaf(left[r], right, sums(r, d));
        }
      }
  }
};

}  // namespace ladder::LADDER_CUDA
