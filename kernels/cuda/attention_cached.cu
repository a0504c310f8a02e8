// Attention of a few queries over the keys and values of a cache. There may be only one query, so a
// thread block takes one query of one head, and its warps share the keys: warp w takes groups of 32
// keys w, w + 8, ... Each warp has a running softmax: each lane scores a key, then each lane sums
// some columns of the values. At the end the softmaxes of the warps are joined, the first warp's
// first.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

constexpr int kCachedWarps = 8;
constexpr int kColumnsOfLane = static_cast<int>(kMaxHead) / kWarp;

/// Heads in rows of qkv and of the cache.
struct CachedHeads {
  int first;  ///< the token of the first query
  int r, NKV, HS;
  float scale;
};

/// The running softmax of a warp: lane i has columns i, i + 32, ... of o.
struct WarpSoftmax {
  float m = -INFINITY, l = 0, o[kColumnsOfLane] = {};

  /// Adds `count` keys from k on, with their values from v on. W divides HS.
  template <int W, class T>
  __device__ void add(const CachedHeads& s, const T* q, const T* k, const T* v, int64_t stride,
                      int count) {
    const int lane = lane_index();
    float score = -INFINITY;
    if (lane < count) {
      score = 0;
#pragma unroll 8  // loads of so many parts are in progress at once
      for (int d = 0; d < s.HS; d += W) {
        const Floats<W> a = load<W>(q + d), b = load<W>(k + lane * stride + d);
        for (int i = 0; i < W; ++i) score = fmaf(a.at[i], b.at[i], score);
      }
      score *= s.scale;
    }
    const float most = Max{}(m, warp_reduce(score, Max{}));
    const float kept = exp_of_difference(m, most);
    const float weight = lane < count ? exp_of_difference(score, most) : 0.0f;
    m = most;
    l = fmaf(kept, l, warp_sum(weight));
    for (float& x : o) x *= kept;
#pragma unroll 8
    for (int u = 0; u < count; ++u) {
      const float by = __shfl_sync(kAllLanes, weight, u);
      for (int c = 0; c < kColumnsOfLane; ++c)
        if (const int d = lane + c * kWarp; d < s.HS)
          o[c] = fmaf(by, to_float(v[u * stride + d]), o[c]);
    }
  }
};

/// Writes a row of out: the softmaxes of all warps, joined. Warps without keys have m = -infinity.
template <class T>
__device__ void join_softmaxes(T* out, const WarpSoftmax& own, int HS) {
  __shared__ float m[kCachedWarps], l[kCachedWarps], o[kCachedWarps][kMaxHead];
  const int warp = warp_index(), lane = lane_index();
  if (lane == 0) m[warp] = own.m;
  if (lane == 0) l[warp] = own.l;
  for (int c = 0; c < kColumnsOfLane; ++c) o[warp][lane + c * kWarp] = own.o[c];
  __syncthreads();
  float most = m[0];
  for (const float x : m) most = Max{}(most, x);
  float sum = 0;
  for (int w = 0; w < kCachedWarps; ++w) sum = fmaf(exp_of_difference(m[w], most), l[w], sum);
  for (int d = static_cast<int>(threadIdx.x); d < HS; d += kCachedWarps * kWarp) {
    float x = 0;
    for (int w = 0; w < kCachedWarps; ++w) x = fmaf(exp_of_difference(m[w], most), o[w][d], x);
    out[d] = from_float<T>(x * (1.0f / sum));
  }
}

/// out (Tq,NH*HS); qkv (Tq,(NH+2*NKV)*HS); cache (P,2*NKV*HS): k, v of each group. One block per
/// query and head.
template <int W, class T>
__global__ void __launch_bounds__(kCachedWarps* kWarp)
    attend_cached(T* out, const T* qkv, const T* cache, CachedHeads s) {
  const int64_t row = blockIdx.x;
  const int h = static_cast<int>(blockIdx.y), g = h / s.r;
  const int64_t stride = int64_t{2} * s.NKV * s.HS;
  const T* q = qkv + (row * (s.r + 2) * s.NKV + g * (s.r + 2) + h % s.r) * s.HS;
  const T* k = cache + int64_t{2} * g * s.HS;
  const int keys = s.first + static_cast<int>(row) + 1;
  WarpSoftmax softmax;
  for (int begin = warp_index() * kWarp; begin < keys; begin += kCachedWarps * kWarp) {
    const T* key = k + begin * stride;
    const int count = keys - begin < kWarp ? keys - begin : kWarp;
    softmax.add<W>(s, q, key, key + s.HS, stride, count);
  }
  join_softmaxes(out + (row * s.r * s.NKV + h) * s.HS, softmax, s.HS);
}

}  // namespace

void attention_cached(const Ctx& ctx, Tensor out, Tensor qkv, Tensor cache, int64_t heads,
                      const CachedPlace& place) {
  refuse_documents(ctx, "attention_cached");
  const Extents s = check_shapes(Op::attention_cached, out, qkv, cache, heads, place);
  CHECK(s.HS <= kMaxHead, "cuda attends with heads of at most {} channels, not {}", kMaxHead, s.HS);
  const CachedHeads rows{.first = static_cast<int>(place.first),
                         .r = static_cast<int>(s.NH / s.NKV),
                         .NKV = static_cast<int>(s.NKV),
                         .HS = static_cast<int>(s.HS),
                         .scale = 1.0f / std::sqrt(static_cast<float>(s.HS))};
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.HS, {qkv, cache}, [&]<int W>(Width<W>) {
      launch(ctx, attend_cached<W, T>, {.x = s.Tq, .y = s.NH}, kCachedWarps * kWarp, 0,
             device_data<T>(out), device_data<T>(qkv), device_data<T>(cache), rows);
    });
  });
}

}  // namespace ladder::LADDER_CUDA
