// What the kernels of causal attention share: who owns what, and where a head's rows lie.
//
// The scores of one head are a triangle: a query (row) sees no later key (column). In tiles:
//
//     keys      0   32  64  96
//   queries 0  [\ ]                    A thread block owns some rows of the triangle, marked o (for
//          32  [##][\ ]                dk and dv: columns). It walks over the partners of its rows,
//          64  [oo][oo][o\]            tile after tile. Two tiles are in shared memory: one in use,
//          96  [##][##][##][\ ]        the next on its way. Tiles beyond the diagonal are left out.
//                                      Tiles that it cuts are masked pair by pair.
//
// So thread blocks share no sum, and no sum needs atomics. Each sum has one order: partners ascend;
// for dk and dv the heads of a group come one after the other. Its bits depend neither on T nor on
// what else runs (arXiv 2205.14135, 2307.08691). The other tables cut the keys into chunks, so that
// ranks can share a sequence. Here a sequence is one running softmax. Only pieces of a sequence
// (attention_pieces.cu) leave softmaxes to be merged.
//
// The kernels are written once, for any "engine". An engine says how the threads of a block hold a
// tile, and how they multiply two. Fma does so with plain multiply-adds (attention_fma.h), Mma with
// the tensor cores of every GPU from sm_80, the A100, on (attention_mma.h), Wgmma with those of
// Hopper (attention_wgmma.h). In every engine a thread holds the same few rows of all tiles that
// its block owns: x(r, c) is the element in row row(r) and column column(c). Warps that multiply
// together are a team: one warp, or four. A kernel starts a product and waits for it later. Only
// the products of Wgmma run in between.
#pragma once

#include <cmath>
#include <cstdint>
#include <cuda_runtime.h>

#include "kernels/cuda/convert.h"
#include "kernels/token_leaves.h"
#include "ptx.h"

namespace ladder::LADDER_CUDA {

/// Thread block (x, y, z) of a grid works on head y of sequence z.
struct Heads {
  int Tq, Tk, NH, HS;
  int r;                 ///< query heads of a group, which share a key and a value head
  int q_row, q_group;    ///< heads in a token's row of queries, and how many of them are a group's
  int kv_row, kv_group;  ///< the same where keys and values are
  int k_first;           ///< heads of a group before its key
  float scale;           ///< 1 / sqrt(HS)
  float unit;            ///< scale log2(e): exp(scale S) = 2^(unit S)
  Sequences all;         ///< of the call; only documents are looked up here: block z has all[z]

  constexpr bool documents() const { return all.documents; }
  /// The row in which document all[z] begins.
  __device__ int begin_of(unsigned z) const { return static_cast<int>(all[z].begin); }
};

/// Queries that follow one another: rows [row, row + count).
struct QueryRun {
  int row, count;
  int lead;  ///< tokens from the first key to the first query
};

/// A document is a sequence of its own: its tokens are the queries and the keys.
inline __device__ void take_document(Heads& heads, QueryRun& run) {
  if (heads.documents())
    heads.Tq = heads.Tk = run.count = static_cast<int>(heads.all[blockIdx.z].size());
}

/// Rows of one head. Each token has one, of `width` neighbors.
template <class T>
struct HeadRows {
  T* first;
  int stride;  ///< from row to row
  int count;
  int width;  ///< HS

  __device__ T* operator[](int row) const { return first + static_cast<int64_t>(row) * stride; }
};

/// Rows [row, row + count) of head `head` of `of_row` in (B,tokens,of_row*HS).
template <class T>
__device__ HeadRows<T> rows_of(const Heads& heads, T* base, int tokens, int of_row, int head,
                               int row, int count) {
  const int stride = of_row * heads.HS;
  const int64_t first =
      heads.documents() ? heads.begin_of(blockIdx.z) : static_cast<int64_t>(tokens) * blockIdx.z;
  return {base + (first + row) * stride + head * heads.HS, stride, count, heads.HS};
}
/// Of query head h.
template <class T>
__device__ HeadRows<T> rows_of_q(const Heads& heads, const QueryRun& run, T* q, int h) {
  return rows_of(heads, q, heads.Tq, heads.q_row, h / heads.r * heads.q_group + h % heads.r,
                 run.row, run.count);
}
/// The keys of group g; its values, if `part` is 1.
template <class T>
__device__ HeadRows<T> rows_of_kv(const Heads& heads, T* kv, int g, int part) {
  return rows_of(heads, kv, heads.Tk, heads.kv_row, g * heads.kv_group + heads.k_first + part, 0,
                 heads.Tk);
}
/// Of query head h in out, dout or o, (B,Tq,NH*HS).
template <class T>
__device__ HeadRows<T> rows_of_out(const Heads& heads, const QueryRun& run, T* out, int h) {
  return rows_of(heads, out, heads.Tq, heads.NH, h, run.row, run.count);
}

/// The place of query head h's first token among statistics (B,NH,tokens). A document has (NH,L)
/// statistics, from its first row on.
inline __device__ int64_t first_statistic(const Heads& heads, int tokens, int h) {
  if (heads.documents())
    return int64_t{heads.begin_of(blockIdx.z)} * heads.NH + int64_t{h} * tokens;
  return (static_cast<int64_t>(blockIdx.z) * heads.NH + h) * tokens;
}

/// exp(x - base), by the instruction for powers of two. If base is the largest x, the result is at
/// most 1.
inline __device__ float exp_of_difference(float x, float base) {
  return exp2f((x - base) * kLog2e);
}

/// How an engine computes exp(S / sqrt(HS) - m). Here the exponent of a score S is S / sqrt(HS),
/// rounded. `base` is rounded in the same way, so the largest weight is exactly 1, however large
/// the scores are.
struct NaturalExponents {
  /// Exponents of the engine, m and lse among them, are the natural ones times this.
  static constexpr float kPerNatural = 1;
  static __device__ float exponent(const Heads& heads, float score) { return score * heads.scale; }
  static __device__ float exp_of_score(const Heads& heads, float score, float base) {
    return exp_of_difference(exponent(heads, score), base);
  }
  static __device__ float exp_of_exponent(float x, float base) {
    return exp_of_difference(x, base);
  }
};

/// Here the exponent is `unit` S, of a power of two: one multiply-add and the power. `base` has
/// been rounded, and the product inside the multiply-add has not. So the largest weight may be a
/// little over 1. Sums of weights have the same error. Nothing overflows up to scores of 2^30,
/// where neighboring floats are 64 apart.
struct PowersOfTwo {
  static constexpr float kPerNatural = kLog2e;
  static __device__ float exponent(const Heads& heads, float score) { return score * heads.unit; }
  static __device__ float exp_of_score(const Heads& heads, float score, float base) {
    return exp2_quick(fmaf(score, heads.unit, -base));
  }
  static __device__ float exp_of_exponent(float x, float base) { return exp2_quick(x - base); }
};

/// Waiting, for an engine whose products are complete as soon as they have been started.
struct InOrder {
  /// Waits until at most the last kPending groups of this thread's copies are missing.
  template <int kPending>
  static __device__ void wait_for_copies() {
    cp_async_wait<kPending>();
  }
  /// Waits until at most the last kPending products are missing from `sums`.
  template <int kPending, class Part>
  static __device__ void wait(Part& /*sums*/) {}
};

/// Where the second stage of partners lies: so many tiles behind the first. OverOwned: in the place
/// of the owned rows, which the engine keeps in registers. None: there is one stage, which is
/// filled again when everyone is done with it.
enum class SecondStage : int8_t { Behind = 2, OverOwned = -2, None = 0 };

/// The shared memory of a thread block: the tiles that it owns, up to two stages of two tiles of
/// partners, and what the engine needs for itself.
template <class E, int kOwnedTiles>
class Room {
 public:
  using Cell = typename E::Cell;
  static constexpr int kToSecond = static_cast<int>(E::kSecondStage);
  static constexpr int kPlaces = kToSecond > 0 ? 2 : 1;  ///< of stages alone
  static_assert(kToSecond >= 0 || 2 * E::kPartners <= kOwnedTiles * E::kOwned);
  static constexpr int kBytes =
      static_cast<int>(sizeof(Cell)) *
      ((kOwnedTiles * E::kOwned + 2 * kPlaces * E::kPartners) * E::kStride + E::kExchange);

  explicit __device__ Room(Cell* base) : base_(base) {}
  __device__ Cell* owned(int tile) const { return base_ + tile * E::kOwned * E::kStride; }
  __device__ Cell* partners(int stage, int tile, int row = 0) const {
    return owned(kOwnedTiles) + ((kToSecond * stage + tile) * E::kPartners + row) * E::kStride;
  }
  __device__ Cell* exchange() const { return partners(0, 2 * kPlaces); }

 private:
  Cell* base_;
};

/// Begins the turn of the partners from `at` on: waits until they are in `stage`. fetch(partner,
/// stage) starts to copy the next partners, or, where there is no second stage, those of this turn.
template <class E, class F>
__device__ void begin_turn(int at, int begin, int end, int stage, F&& fetch) {
  constexpr bool kTwoStages = E::kSecondStage != SecondStage::None;
  if (!kTwoStages && at > begin) {
    __syncthreads();  // everyone is done with the partners before
    fetch(at, stage);
  }
  E::template wait_for_copies<0>();
  __syncthreads();  // this stage is there, and everyone is done with the other
  if (kTwoStages && at + E::kPartners < end) fetch(at + E::kPartners, stage ^ 1);
}

/// Some queries and some keys. A pair counts if the query sees the key.
struct Pairs {
  int first_query, queries;
  int first_key, keys;

  __device__ bool any() const { return first_key < first_query + queries; }
  __device__ bool all() const { return first_key + keys - 1 <= first_query; }
};

}  // namespace ladder::LADDER_CUDA
