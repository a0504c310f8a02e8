// Causal attention, backward (arXiv 2205.14135, 2307.08691): P = exp(S - lse) is computed again,
// tile by tile. dk and dv are sums over queries, dq is a sum over keys. So there are two kernels.
// In each, a thread block owns what it sums and walks over the rest, so that it adds to nothing
// that another block has written. The price is that both kernels compute S and dP. (The kernel of
// arXiv 2307.08691 adds to dq with atomics, in any order.) The two are mirror images:
//
//                  owned     partners          weights                      sums
//   Side::Queries  Q, dO     K, V       S   = Q K^T,  dP   = dO V^T   dQ += dS K
//   Side::Keys     K, V      Q, dO      S^T = K Q^T,  dP^T = V dO^T   dK += dS^T Q,  dV += P^T dO
//
// with dS = P (dP - D). The factor 1 / sqrt(HS) follows at the end. A block that owns keys walks
// over the queries of every head of their group.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/attention_pairs.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/warp.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// The queries of a piece, and the statistics of each run: (B,NH,padded(count)).
struct Queries {
  QueryRun runs[2];
  Statistic* statistics[2];

  /// Tokens from the first key to behind the last query.
  constexpr int end() const {
    const auto end_of = [](const QueryRun& run) {
      return run.count > 0 ? run.lead + run.count : 0;
    };
    return std::max(end_of(runs[0]), end_of(runs[1]));
  }
};

constexpr int kStatisticThreads = kPadTokens;

/// Threads that compute one statistic. In FP32 one thread sums in the order of Fma. So where one
/// key has all the weight, out is its v, and dP - D is exactly 0. Large keys would magnify a
/// rounding.
template <class T>
constexpr int kTokenThreads = sizeof(T) == 4 ? 1 : 8;

/// Where the statistics of query head h begin. Those of a document are padded like a sequence's.
inline __device__ int64_t first_padded(const Heads& heads, const QueryRun& run, int h) {
  const int tokens = padded(run.count);
  if (!heads.documents()) return first_statistic(heads, tokens, h);
  // Documents before it need at most so much: their tokens, and less than kPadTokens for each.
  const int room = padded(heads.begin_of(blockIdx.z)) + static_cast<int>(blockIdx.z) * kPadTokens;
  return int64_t{room} * heads.NH + int64_t{h} * tokens;
}

/// Statistics of `count` documents, for each head.
inline int64_t padded_documents(const Extents& s, int64_t count) {
  return s.B * s.Tq + kPadTokens * (count + 1);
}
/// How many documents have room for their statistics.
inline int64_t documents_at_once(const Ctx& ctx, const Extents& s) {
  const int64_t fit = (Scratch(ctx).room() - 256) / (s.NH * int64_t{sizeof(Statistic)});
  return std::min(kMaxGrid.z, (fit - padded_documents(s, 0)) / kPadTokens);
}

/// Statistics of a run: (B,NH,padded(count)).
template <class E, class T = typename E::Element>
__global__ void statistics_kernel(Heads heads, QueryRun run, Statistic* statistics, const T* dout,
                                  const T* out, const float* lse) {
  constexpr int kThreads = kTokenThreads<T>, kNeighbors = E::kNeighbors;
  take_document(heads, run);
  const int thread =
      static_cast<int>(blockIdx.x) * kStatisticThreads + static_cast<int>(threadIdx.x);
  const int t = thread / kThreads, lane = thread % kThreads;
  const int h = static_cast<int>(blockIdx.y);
  const auto dy = rows_of_out(heads, run, dout, h);
  const auto y = rows_of_out(heads, run, out, h);
  float D = 0;
  if (t < run.count)
    for (int d = lane * kNeighbors; d < heads.HS; d += kThreads * kNeighbors) {
      const auto a = load<kNeighbors>(dy[t] + d), b = load<kNeighbors>(y[t] + d);
#pragma unroll
      for (int i = 0; i < kNeighbors; ++i) D = fmaf(a.at[i], b.at[i], D);
    }
#pragma unroll
  for (int step = kThreads / 2; step > 0; step /= 2) D += __shfl_xor_sync(kAllLanes, D, step);
  if (lane > 0 || t >= padded(run.count)) return;
  const int64_t of_lse = first_statistic(heads, heads.Tq, h) + run.row + t;
  statistics[first_padded(heads, run, h) + t] =
      t < run.count ? Statistic{lse[of_lse] * E::kPerNatural, D} : Statistic{INFINITY, 0.0f};
}

/// dq of the queries of a run. dq, q, kv as `heads` says; dout (B,Tq,NH*HS)
template <class E, class To, class T = typename E::Element>
__global__ void __launch_bounds__(E::kThreads, E::kBlocks)
    queries_kernel(Heads heads, QueryRun run, const Statistic* statistics, To* dq, const T* dout,
                   const T* q_base, const T* kv) {
  take_document(heads, run);
  const int h = static_cast<int>(blockIdx.y);
  // The last queries see the most keys. They go first, so that no long block starts at the end.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * E::kOwned;
  if (first >= run.count) return;  // of a document that is not the longest
  const auto q = rows_of_q(heads, run, q_base, h);
  const auto dy = rows_of_out(heads, run, dout, h);
  const BackwardRoom<E> room(dynamic_shared<typename E::Cell>());
  E::template copy<E::kOwned>(room.owned(0), q, first);
  E::template copy<E::kOwned>(room.owned(1), dy, first);
  cp_async_commit();
  BackwardSums<E> sums;
  add_pairs<E, Side::Queries>(sums, heads, run, first, q, rows_of_kv(heads, kv, h / heads.r, 0),
                              rows_of_kv(heads, kv, h / heads.r, 1), dy,
                              statistics + first_padded(heads, run, h));
  if (first + E::team_row() >= run.count) return;
  E::write(rows_of_q(heads, run, dq, h), first, sums.by_slopes, [&](int r, float sum) {
    const bool sees = run.lead + first + E::row(r) >= 0;
    return sees ? sum * heads.scale : -0.0f;
  });
}

/// dk and dv. dkv, q, kv as `heads` says; dout (B,Tq,NH*HS)
template <class E, class To, class T = typename E::Element>
__global__ void __launch_bounds__(E::kThreads, E::kBlocks)
    keys_kernel(Heads heads, Queries queries, To* dkv, const T* dout, const T* q, const T* kv) {
  take_document(heads, queries.runs[0]);
  const int g = static_cast<int>(blockIdx.y);
  // The most queries see the first keys. So these go first.
  const int first = static_cast<int>(blockIdx.x) * E::kOwned;
  if (first >= heads.Tk) return;
  const auto k = rows_of_kv(heads, kv, g, 0);
  const auto v = rows_of_kv(heads, kv, g, 1);
  const BackwardRoom<E> room(dynamic_shared<typename E::Cell>());
  E::template copy<E::kOwned>(room.owned(0), k, first);
  E::template copy<E::kOwned>(room.owned(1), v, first);
  cp_async_commit();
  BackwardSums<E> sums;
  for (int head = 0; head < 2 * heads.r; ++head) {  // each with two runs
    // No index: the compiler copies parameters to memory if they are indexed.
    const QueryRun run = head % 2 == 0 ? queries.runs[0] : queries.runs[1];
    const Statistic* statistics = head % 2 == 0 ? queries.statistics[0] : queries.statistics[1];
    if (run.count == 0) continue;
    const int h = g * heads.r + head / 2;
    if (head > 0) __syncthreads();  // everyone is done with the stages of the head before
    add_pairs<E, Side::Keys>(sums, heads, run, first, rows_of_q(heads, run, q, h), k, v,
                             rows_of_out(heads, run, dout, h),
                             statistics + first_padded(heads, run, h));
  }
  if (first + E::team_row() >= heads.Tk) return;
  const auto seen = [&](int r) { return first + E::row(r) < queries.end(); };
  E::write(rows_of_kv(heads, dkv, g, 0), first, sums.by_slopes,
           [&](int r, float sum) { return seen(r) ? sum * heads.scale : -0.0f; });
  E::write(rows_of_kv(heads, dkv, g, 1), first, sums.by_weights,
           [&](int r, float sum) { return seen(r) ? sum : -0.0f; });
}

/// dq and dkv have elements To. They are one tensor, as q and kv are then, or two.
template <class E, class To, class T = typename E::Element>
void backward(const Ctx& ctx, const Extents& s, const AttentionPositions& place, const Heads& heads,
              To* dq, To* dkv, const T* dout, const T* q, const T* kv, const T* out,
              const float* lse) {
  static_assert(kPadTokens % E::kOwned == 0 && kPadTokens % E::kPartners == 0);
  Scratch scratch(ctx);
  Queries queries{};
  const bool documents = heads.documents();
  const Sequences all = documents ? heads.all : Sequences{s.B, s.Tk};
  const auto tokens_of = [&](const QueryRun& run) {
    return documents && run.count > 0 ? static_cast<int>(all.T) : run.count;
  };
  for (int i = 0; i < 2; ++i) {
    queries.runs[i] = runs_of(s, place)[static_cast<size_t>(i)];
    const int tokens = padded(tokens_of(queries.runs[i]));
    const int64_t room = documents && tokens > 0 ? padded_documents(s, all.count) : s.B * tokens;
    queries.statistics[i] = scratch.take<Statistic>(s.NH * room);
    launch(ctx, statistics_kernel<E>,
           {.x = tokens / kStatisticThreads * kTokenThreads<T>, .y = s.NH, .z = all.count},
           kStatisticThreads, 0, heads, queries.runs[i], queries.statistics[i], dout, out, lse);
  }
  launch(ctx, keys_kernel<E, To>, grid_of<E>(all.count, s.NKV, all.T), E::kThreads,
         BackwardRoom<E>::kBytes, heads, queries, dkv, dout, q, kv);
  for (int i = 0; i < 2; ++i)
    launch(ctx, queries_kernel<E, To>, grid_of<E>(all.count, s.NH, tokens_of(queries.runs[i])),
           E::kThreads, BackwardRoom<E>::kBytes, heads, queries.runs[i], queries.statistics[i], dq,
           dout, q, kv);
}

/// By engine E. dqkv, qkv (B,Tq,(NH+2*NKV)*HS); dout, out (B,Tq,NH*HS); lse (B,NH,Tq)
template <class E>
void attend_backward(const Ctx& ctx, const Extents& s, Tensor dqkv, Tensor dout, Tensor qkv,
                     Tensor out, Tensor lse) {
  using T = typename E::Element;
  const T* x = device_data<T>(qkv);
  T* dx = device_data<T>(dqkv);
  const auto backward_of = [&](const Sequences& part) {
    backward<E>(ctx, s, whole_sequence(s.Tq), heads_of(s, true, part), dx, dx, device_data<T>(dout),
                x, x, device_data<T>(out), device_data<float>(lse));
  };
  in_parts(sequences_of(ctx, s.B, s.Tq), documents_at_once(ctx, s), backward_of);
}

/// By engine E. dq (B,Tq,NH*HS), dkv (B,Tk,2*NKV*HS), both F32; q and kv alike, in E's dtype; dout
/// and out like q; lse (B,NH,Tq)
template <class E>
void attend_piece_backward(const Ctx& ctx, const Extents& s, Tensor dq, Tensor dkv, Tensor dout,
                           Tensor q, Tensor kv, Tensor out, Tensor lse,
                           const AttentionPositions& place) {
  using T = typename E::Element;
  backward<E>(ctx, s, place, heads_of(s, false), device_data<float>(dq), device_data<float>(dkv),
              device_data<T>(dout), device_data<T>(q), device_data<T>(kv), device_data<T>(out),
              device_data<float>(lse));
}

}  // namespace ladder::LADDER_CUDA
