// What the kernels of causal attention share: who owns what, and where a head's rows lie.
//
// The scores of one head are a triangle: a query (row) sees no later key (column). In blocks:
//
//     keys      0   32  64  96
//   queries 0  [\ ]                    A thread block owns some rows (for dk and dv: columns) of
//          32  [##][\ ]                the triangle, marked o, and walks over the partners of
//          64  [oo][oo][o\]            these, one block after the other. Two are in shared memory:
//          96  [##][##][##][\ ]        one in use, the next on its way. Blocks beyond the diagonal
//                                      are left out, those that it cuts are masked pair by pair.
//
// So no sum is shared between thread blocks, none needs atomics, and each has one order: partners
// ascend. Bits depend neither on T nor on what else runs (arXiv 2205.14135, 2307.08691).
//
// The kernels are written once, over an "engine" that knows how the threads of a block hold a
// block of numbers and multiply two: Mma with tensor cores (attention_mma.h), Fma with plain
// multiply-adds (attention_fma.h). In both, a thread holds the same few rows of everything that
// its block owns: x(r, c) is the element in row row(r) and column column(c).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>

#include "kernels/check.h"

namespace ladder::LADDER_CUDA {

constexpr float kLog2e = 1.44269504f;

/// Thread block (x, y, z) of a grid works on head y of sequence z.
struct Heads {
  int T, NH, HS;
  float scale;  ///< 1 / sqrt(HS)

  /// exp(score / sqrt(HS)) = exp2(score unit): there is an instruction for powers of two.
  constexpr float unit() const { return scale * kLog2e; }
};

/// Rows of one head, one a token: `width` neighbors each.
template <class T>
struct Rows {
  T* first;
  int64_t stride;  ///< from row to row
  int count;       ///< T
  int width;       ///< HS

  __device__ T* operator[](int row) const { return first + row * stride; }
};

/// Rows of qkv or dqkv, (B,T,3*NH*HS): q, k, v are parts 0, 1, 2 of a head.
template <class T>
__device__ Rows<T> rows_of_part(const Heads& heads, T* qkv, int part) {
  const int64_t stride = int64_t{3} * heads.NH * heads.HS;
  const int column = (3 * static_cast<int>(blockIdx.y) + part) * heads.HS;
  return {qkv + heads.T * stride * blockIdx.z + column, stride, heads.T, heads.HS};
}

/// Rows of out or dout, (B,T,NH*HS).
template <class T>
__device__ Rows<T> rows_of_out(const Heads& heads, T* out) {
  const int64_t stride = static_cast<int64_t>(heads.NH) * heads.HS;
  const int column = static_cast<int>(blockIdx.y) * heads.HS;
  return {out + heads.T * stride * blockIdx.z + column, stride, heads.T, heads.HS};
}

/// Row of the first token of this head among statistics, (B,NH,tokens).
inline __device__ int64_t first_statistic(const Heads& heads, int tokens) {
  return (static_cast<int64_t>(blockIdx.z) * heads.NH + blockIdx.y) * tokens;
}

/// The shared memory of a thread block: what it owns, two stages of two tiles of partners, and
/// what the engine needs to itself.
template <class E, int kOwnedTiles>
class Room {
 public:
  using Cell = typename E::Cell;
  static constexpr int kBytes =
      static_cast<int>(sizeof(Cell)) *
      ((kOwnedTiles * E::kOwned + 4 * E::kPartners) * E::kStride + E::kExchange);

  explicit __device__ Room(Cell* base) : base_(base) {}
  __device__ Cell* owned(int tile) const { return base_ + tile * E::kOwned * E::kStride; }
  __device__ Cell* partners(int stage, int tile) const {
    return owned(kOwnedTiles) + (2 * stage + tile) * E::kPartners * E::kStride;
  }
  __device__ Cell* exchange() const { return partners(2, 0); }

 private:
  Cell* base_;
};

/// Some queries and some keys: which of their pairs count?
struct Pairs {
  int first_query, queries;
  int first_key, keys;

  __device__ bool any() const { return first_key < first_query + queries; }
  __device__ bool all() const { return first_key + keys - 1 <= first_query; }
};

}  // namespace ladder::LADDER_CUDA
