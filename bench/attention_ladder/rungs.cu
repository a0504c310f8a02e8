// Rung 1 is here: a thread for a query. The others are kernels/cuda/ with other engines.
#include "bench/attention_ladder/ladder.h"
#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/attention_engines.h"
#include "kernels/cuda/attention_forward.h"
#include "kernels/cuda/table.h"

namespace ladder::bench {
namespace {

namespace dev = ladder::LADDER_CUDA;
using T = __nv_bfloat16;

constexpr int kHS = 64, kQueries = 64;

/// A thread has its query and its output in registers, and reads keys and values from global
/// memory, one after the other: all threads of a warp read the same. The maximum may rise with each
/// key.
__global__ void query_kernel(dev::Heads heads, dev::QueryRun run, T* out, float* lse,
                             const T* qkv) {
  const int t = static_cast<int>(blockIdx.x) * kQueries + static_cast<int>(threadIdx.x);
  const int h = static_cast<int>(blockIdx.y);
  if (t >= run.count) return;
  const auto k = dev::rows_of_kv(heads, qkv, h, 0), v = dev::rows_of_kv(heads, qkv, h, 1);
  dev::Floats<kHS> q = dev::load<kHS>(dev::rows_of_q(heads, run, qkv, h)[t]), o{};
  float m = -INFINITY, l = 0;
  for (int u = 0; u <= t; ++u) {
    const dev::Floats<kHS> key = dev::load<kHS>(k[u]), value = dev::load<kHS>(v[u]);
    float s = 0;
#pragma unroll
    for (int d = 0; d < kHS; ++d) s = fmaf(q.at[d], key.at[d], s);
    s *= heads.scale;
    const float most = fmaxf(m, s);
    const float alpha = dev::exp_of_difference(m, most), p = dev::exp_of_difference(s, most);
    m = most;
    l = fmaf(alpha, l, p);
#pragma unroll
    for (int d = 0; d < kHS; ++d) o.at[d] = fmaf(p, value.at[d], alpha * o.at[d]);
  }
  lse[dev::first_statistic(heads, heads.Tq, h) + t] = m + logf(l);
#pragma unroll
  for (int d = 0; d < kHS; ++d) o.at[d] /= l;
  dev::store<kHS>(dev::rows_of_out(heads, run, out, h)[t], o);
}

Extents shape_of(Tensor lse) {
  const int64_t B = lse.dim(0), NH = lse.dim(1), tokens = lse.dim(2);
  return {.B = B, .NH = NH, .NKV = NH, .HS = kHS, .Tq = tokens, .Tk = tokens};
}

void thread_per_query(const Ctx& ctx, Tensor out, Tensor lse, Tensor qkv) {
  const Extents s = shape_of(lse);
  dev::launch(ctx, query_kernel, {.x = ceil_div(s.Tq, kQueries), .y = s.NH, .z = s.B}, kQueries, 0,
              dev::heads_of(s, true), dev::runs_of(s, whole_sequence(s.Tq))[0],
              dev::device_data<T>(out), dev::device_data<float>(lse), dev::device_data<T>(qkv));
}

template <class E>
void forward(const Ctx& ctx, Tensor out, Tensor lse, Tensor qkv) {
  dev::attend_forward<E>(ctx, shape_of(lse), out, lse, qkv);
}
template <class E>
void backward(const Ctx& ctx, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse) {
  dev::attend_backward<E>(ctx, shape_of(lse), dqkv, dout, qkv, out, lse);
}

}  // namespace

std::vector<Rung> rungs() {
  using Fma = dev::Fma<T, kHS>;
  // Strips a warp, warps, partners a stage, partners at a time.
  using OneStrip = dev::Mma<T, kHS, 1, 8, 64, 64>;
  using OneStripBack = dev::Mma<T, kHS, 1, 8, 64, 16>;
  using TwoStrips = dev::Mma<T, kHS, 2, 4, 64, 64>;
  using TwoStripsBack = dev::Mma<T, kHS, 2, 4, 64, 16>;
  return {{"1 a thread for a query", thread_per_query, nullptr},
          {"2 tiles, multiply-adds", forward<Fma>, backward<Fma>},
          {"3 tensor cores, one strip a warp", forward<OneStrip>, backward<OneStripBack>},
          {"4 two strips a warp", forward<TwoStrips>, backward<TwoStripsBack>},
          {"5 as the table chooses", dev::attention_forward, dev::attention_backward}};
}

}  // namespace ladder::bench
