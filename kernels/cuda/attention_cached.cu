// Attention of a few queries over the keys and values of a cache. A warp takes one query of one
// head: each lane scores a key, then each lane sums some columns of the values. A query's keys are
// one running softmax, in blocks of 32.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/warp.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

constexpr int kCachedThreads = 128;
constexpr int kColumnsOfLane = static_cast<int>(kMaxHead) / kWarp;

/// Heads in rows of qkv and of the cache.
struct CachedHeads {
  int m, first;  ///< queries, and the token of the first
  int r, NKV, HS;
  float scale;
};

template <class T>
__global__ void attend_cached(T* out, const T* qkv, const T* cache, CachedHeads s) {
  const int row = static_cast<int>(blockIdx.x) * (kCachedThreads / kWarp) + warp_index();
  if (row >= s.m) return;
  const int h = static_cast<int>(blockIdx.y), g = h / s.r, lane = lane_index();
  const int64_t stride = int64_t{2} * s.NKV * s.HS;
  const T* q = qkv + (row * int64_t{s.r + 2} * s.NKV + g * (s.r + 2) + h % s.r) * s.HS;
  const T* k = cache + int64_t{2} * g * s.HS;
  const T* v = k + s.HS;
  float m = -INFINITY, l = 0, o[kColumnsOfLane] = {};
  const int keys = s.first + row + 1;
  for (int begin = 0; begin < keys; begin += kWarp) {
    const int count = keys - begin < kWarp ? keys - begin : kWarp;
    float score = -INFINITY;
    if (lane < count) {
      score = 0;
      for (int d = 0; d < s.HS; ++d)
        score = fmaf(to_float(q[d]), to_float(k[(begin + lane) * stride + d]), score);
      score *= s.scale;
    }
    const float most = Max{}(m, warp_reduce(score, Max{}));
    const float kept = exp_of_difference(m, most);
    const float weight = lane < count ? exp_of_difference(score, most) : 0.0f;
    m = most;
    l = fmaf(kept, l, warp_sum(weight));
    for (float& x : o) x *= kept;
    for (int u = 0; u < count; ++u) {
      const float by = __shfl_sync(kAllLanes, weight, u);
      for (int c = 0; c < kColumnsOfLane; ++c)
        if (const int d = lane + c * kWarp; d < s.HS)
          o[c] = fmaf(by, to_float(v[(begin + u) * stride + d]), o[c]);
    }
  }
  T* to = out + (row * int64_t{s.r} * s.NKV + h) * s.HS;
  for (int c = 0; c < kColumnsOfLane; ++c)
    if (const int d = lane + c * kWarp; d < s.HS) to[d] = from_float<T>(o[c] * (1.0f / l));
}

}  // namespace

void attention_cached(const Ctx& ctx, Tensor out, Tensor qkv, Tensor cache, int64_t heads,
                      const CachedPlace& place) {
  refuse_documents(ctx, "attention_cached");
  const Extents s = check_shapes(Op::attention_cached, out, qkv, cache, heads, place);
  const CachedHeads rows{.m = static_cast<int>(s.Tq),
                         .first = static_cast<int>(place.first),
                         .r = static_cast<int>(s.NH / s.NKV),
                         .NKV = static_cast<int>(s.NKV),
                         .HS = static_cast<int>(s.HS),
                         .scale = 1.0f / std::sqrt(static_cast<float>(s.HS))};
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    launch(ctx, attend_cached<T>, {.x = ceil_div(s.Tq, kCachedThreads / kWarp), .y = s.NH},
           kCachedThreads, 0, device_data<T>(out), device_data<T>(qkv), device_data<T>(cache),
           rows);
  });
}

}  // namespace ladder::LADDER_CUDA
