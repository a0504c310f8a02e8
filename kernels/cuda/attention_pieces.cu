// Joins the pieces of attention: softmaxes over some keys become one, and the last becomes a
// result. A warp takes one query of one head.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/warp.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

constexpr int kThreads = 256;

/// (o, m, l) of T queries: (B,T,NH*HS), and (B,NH,T) twice.
struct Softmaxes {
  float *o, *m, *l;
};

/// One query of one head.
struct Query {
  int64_t statistic;  ///< its place in m and l
  int64_t row;        ///< the place of its HS columns in o
};

/// Query t of this block's head and sequence.
__device__ Query query_of(int t, int T, int NH, int HS) {
  const int64_t b = blockIdx.z, h = blockIdx.y;
  return {(b * NH + h) * T + t, ((b * T + t) * NH + h) * HS};
}
__device__ int token_of_warp() {
  return static_cast<int>(blockIdx.x) * (kThreads / kWarp) + warp_index();
}

/// Adds `later` (o', m', l') to `sum` (o, m, l). With M = max(m, m'):
/// (o, l) = exp(m - M) (o, l) + exp(m' - M) (o', l'); m = M.
__global__ void merge_kernel(Softmaxes sum, Softmaxes later, int T, int NH, int HS) {
  const int t = token_of_warp();
  if (t >= T) return;
  const auto [i, row] = query_of(t, T, NH, HS);
  const float m = sum.m[i], l = sum.l[i], later_m = later.m[i], later_l = later.l[i];
  if (later_l == 0) return;  // absent
  const float most = fmaxf(m, later_m);
  const float mine = l == 0 ? 0.0f : exp_of_difference(m, most);
  const float theirs = exp_of_difference(later_m, most);
  __syncwarp();  // all lanes have read
  if (lane_index() == 0) {
    sum.m[i] = most;
    sum.l[i] = fmaf(mine, l, theirs * later_l);
  }
  for (int d = lane_index(); d < HS; d += kWarp)
    sum.o[row + d] = fmaf(mine, sum.o[row + d], theirs * later.o[row + d]);
}

/// out = o / l; lse = m + log l. out (B,T,NH*HS); lse (B,NH,T)
template <class T>
__global__ void finish_kernel(T* out, float* lse, Softmaxes sum, int tokens, int NH, int HS) {
  const int t = token_of_warp();
  if (t >= tokens) return;
  const auto [i, row] = query_of(t, tokens, NH, HS);
  const float l = sum.l[i], by = 1.0f / l;
  if (lane_index() == 0) lse[i] = sum.m[i] + logf(l);
  for (int d = lane_index(); d < HS; d += kWarp) out[row + d] = from_float<T>(sum.o[row + d] * by);
}

Grid grid_of_queries(const Extents& s) {
  return {.x = ceil_div(s.Tq, kThreads / kWarp), .y = s.NH, .z = s.B};
}

Softmaxes softmaxes(const Tensor& o, const Tensor& m, const Tensor& l) {
  return {device_data<float>(o), device_data<float>(m), device_data<float>(l)};
}

}  // namespace

void attention_merge(const Ctx& ctx, Tensor o, Tensor m, Tensor l, Tensor later_o, Tensor later_m,
                     Tensor later_l) {
  const Extents s = check_shapes(Op::attention_merge, o, m, l, later_o, later_m, later_l);
  launch(ctx, merge_kernel, grid_of_queries(s), kThreads, 0, softmaxes(o, m, l),
         softmaxes(later_o, later_m, later_l), static_cast<int>(s.Tq), static_cast<int>(s.NH),
         static_cast<int>(s.HS));
}

void attention_finish(const Ctx& ctx, Tensor out, Tensor lse, Tensor o, Tensor m, Tensor l) {
  const Extents s = check_shapes(Op::attention_finish, out, lse, o, m, l);
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    launch(ctx, finish_kernel<T>, grid_of_queries(s), kThreads, 0, device_data<T>(out),
           device_data<float>(lse), softmaxes(o, m, l), static_cast<int>(s.Tq),
           static_cast<int>(s.NH), static_cast<int>(s.HS));
  });
}

}  // namespace ladder::LADDER_CUDA
