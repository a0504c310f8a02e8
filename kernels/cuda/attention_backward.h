// Causal attention, backward (arXiv 2205.14135, 2307.08691): P = exp(S - lse) is computed again,
// block by block. dk and dv are sums over queries, dq is a sum over keys; so there are two kernels,
// in each of which a thread block owns what it sums and walks over the rest, and nobody adds to
// what another wrote. S and dP are computed in both: that is the price (arXiv 2307.08691 has one
// kernel, and adds to dq with atomics, in any order). They are each other's mirror image:
//
//                  owned     partners          weights                      sums
//   Side::Queries  Q, dO     K, V       S   = Q K^T,  dP   = dO V^T   dQ += dS K
//   Side::Keys     K, V      Q, dO      S^T = K Q^T,  dP^T = V dO^T   dK += dS^T Q,  dV += P^T dO
//
// with dS = P (dP - D), and 1 / sqrt(HS) multiplied in at the end. Keys walk over the queries of
// every head of their group.
#pragma once

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/warp.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// What backward needs to know of a query.
struct alignas(8) Statistic {
  float lse;  ///< an exponent of the engine; infinite past the last token of a run: P is 0 there
  float D;    ///< dout . out, which is sum_u P[t,u] (dout_t . v_u)
};

/// Statistics of a run of a head, padded to whole blocks of either kernel.
constexpr int kPadTokens = 128;
constexpr int padded(int tokens) { return (tokens + kPadTokens - 1) / kPadTokens * kPadTokens; }

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

/// Threads that compute one statistic. In FP32 one sums as Fma does: where one key has all the
/// weight, out is its v, and dP - D exactly 0, not a rounding that large keys would magnify.
template <class T>
constexpr int kTokenThreads = sizeof(T) == 4 ? 1 : 8;

/// Statistics of a run: (B,NH,padded(count)).
template <class E, class T = typename E::Element>
__global__ void statistics_kernel(Heads heads, QueryRun run, Statistic* statistics, const T* dout,
                                  const T* out, const float* lse) {
  constexpr int kThreads = kTokenThreads<T>, kWide = E::kWide;
  const int thread =
      static_cast<int>(blockIdx.x) * kStatisticThreads + static_cast<int>(threadIdx.x);
  const int t = thread / kThreads, lane = thread % kThreads;
  const int h = static_cast<int>(blockIdx.y);
  const auto dy = rows_of_out(heads, run, dout, h);
  const auto y = rows_of_out(heads, run, out, h);
  float D = 0;
  if (t < run.count)
    for (int d = lane * kWide; d < heads.HS; d += kThreads * kWide) {
      const auto a = load<kWide>(dy[t] + d), b = load<kWide>(y[t] + d);
#pragma unroll
      for (int i = 0; i < kWide; ++i) D = fmaf(a.at[i], b.at[i], D);
    }
#pragma unroll
  for (int step = kThreads / 2; step > 0; step /= 2) D += __shfl_xor_sync(kAllLanes, D, step);
  if (lane > 0) return;
  const int64_t of_lse = first_statistic(heads, heads.Tq, h) + run.row + t;
  statistics[first_statistic(heads, padded(run.count), h) + t] =
      t < run.count ? Statistic{lse[of_lse] * E::kPerNatural, D} : Statistic{INFINITY, 0.0f};
}

enum class Side : uint8_t { Queries, Keys };

template <class E>
using BackwardRoom = Room<E, 2>;

/// Queries see no later keys. ahead: tokens from the first column to the first row.
template <class E, Side kSide>
__device__ void mask(typename E::Scores& s, int ahead) {
#pragma unroll
  for (int c = 0; c < E::Scores::kColumns; ++c)
#pragma unroll
    for (int r = 0; r < E::kRows; ++r) {
      const int later = ahead + E::row(r) - E::column(c);  // the row than the column
      if (kSide == Side::Queries ? later < 0 : later > 0) s(r, c) = -INFINITY;
    }
}

/// S becomes P. statistic_of(r, c): of a pair's query.
template <class E, class F>
__device__ void to_weights(const Heads& heads, typename E::Scores& s, F&& statistic_of) {
#pragma unroll
  for (int c = 0; c < E::Scores::kColumns; ++c)
#pragma unroll
    for (int r = 0; r < E::kRows; ++r)
      s(r, c) = E::exp_of_score(heads, s(r, c), statistic_of(r, c).lse);
}

/// dP becomes dS = P (dP - D).
template <class E, class F>
__device__ void to_slopes(typename E::Scores& dp, typename E::Scores& p, F&& statistic_of) {
#pragma unroll
  for (int c = 0; c < E::Scores::kColumns; ++c)
#pragma unroll
    for (int r = 0; r < E::kRows; ++r) dp(r, c) = p(r, c) * (dp(r, c) - statistic_of(r, c).D);
}

/// What the threads of a block sum: dK and dV, or dQ and nothing.
template <class E>
struct BackwardSums {
  typename E::Sums by_slopes{}, by_weights{};
};

/// The pairs of what a block owns and of one run of one head, q, k, v, dy: what they add to `sums`.
template <class E, Side kSide, class T = typename E::Element>
__device__ void add_pairs(BackwardSums<E>& sums, const Heads& heads, const QueryRun& run, int first,
                          const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v,
                          const Rows<const T>& dy, const Statistic* statistics) {
  constexpr bool kKeys = kSide == Side::Keys;
  const int mine = first + E::team_row();  // of this team
  const int rows = kKeys ? heads.Tk : run.count;
  // Partners that have a pair with a row of the block, from whole blocks of them on.
  const int begin = kKeys ? std::max(0, first - run.lead) / E::kPartners * E::kPartners : 0;
  const int end =
      kKeys ? run.count : std::min(heads.Tk, run.lead + std::min(run.count, first + E::kOwned));

  alignas(16) __shared__ Statistic partner_statistics[2][E::kPartners];
  const BackwardRoom<E> room(dynamic_shared<typename E::Cell>());
  const auto fetch = [&](int partner, int stage) {
    E::template copy<E::kPartners>(room.partners(stage, 0), kKeys ? q : k, partner);
    E::template copy<E::kPartners>(room.partners(stage, 1), kKeys ? dy : v, partner);
    const int i = static_cast<int>(threadIdx.x) * 2;  // two statistics are 16 bytes
    if (kKeys && i < E::kPartners)
      cp_async_16(&partner_statistics[stage][i], statistics + partner + i);
    cp_async_commit();
  };
  if (begin >= end) return;
  fetch(begin, 0);
  E::template wait_for_copies<1>();  // for the owned rows, not for the partners
  __syncthreads();
  const typename E::Owned owned[2] = {E::owned(room.owned(0)), E::owned(room.owned(1))};
  Statistic own[E::kRows];
#pragma unroll
  for (int r = 0; r < E::kRows; ++r)
    if (!kKeys) own[r] = statistics[first + E::row(r)];

  for (int partner = begin, stage = 0; partner < end; partner += E::kPartners, stage ^= 1) {
    E::template wait_for_copies<0>();
    __syncthreads();  // this stage is there, and everyone is done with the other
    if (partner + E::kPartners < end) fetch(partner + E::kPartners, stage ^ 1);
    if (mine >= rows) continue;
#pragma unroll 1  // not more: what is loaded ahead would take registers that the sums need
    for (int slice = 0; slice < E::kPartners; slice += E::kSlice) {
      const int start = partner + slice;
      const Pairs pairs = kKeys ? Pairs{run.lead + start, E::kSlice, mine, E::kTeamRows}
                                : Pairs{run.lead + mine, E::kTeamRows, start, E::kSlice};
      if (!pairs.any()) continue;
      Statistic of_partners[E::Scores::kColumns];
#pragma unroll
      for (int c = 0; c < E::Scores::kColumns; ++c)
        if (kKeys) of_partners[c] = partner_statistics[stage][slice + E::column(c)];
      const auto statistic_of = [&](int r, int c) { return kKeys ? of_partners[c] : own[r]; };
      // Tokens from the first partner to the first row of the block.
      const int ahead = kKeys ? first - start - run.lead : run.lead + first - start;
      typename E::Scores p, ds;
      E::start_scores(p, owned[0], room.partners(stage, 0, slice));
      E::start_scores(ds, owned[1], room.partners(stage, 1, slice));
      E::template wait<1>(p);
      if (!pairs.all()) mask<E, kSide>(p, ahead);
      to_weights<E>(heads, p, statistic_of);
      if (kKeys)
        E::start_accumulate(sums.by_weights, p, room.partners(stage, 1, slice), room.exchange());
      E::template wait<kKeys ? 1 : 0>(ds);
      to_slopes<E>(ds, p, statistic_of);
      E::start_accumulate(sums.by_slopes, ds, room.partners(stage, 0, slice), room.exchange());
      E::template wait<0>(sums.by_weights);
      E::template wait<0>(sums.by_slopes);
    }
  }
}

/// dq of the queries of a run. dq, q, kv as `heads` says; dout (B,Tq,NH*HS)
template <class E, class To, class T = typename E::Element>
__global__ void __launch_bounds__(E::kThreads, E::kBlocks)
    queries_kernel(Heads heads, QueryRun run, const Statistic* statistics, To* dq, const T* dout,
                   const T* q_base, const T* kv) {
  const int h = static_cast<int>(blockIdx.y);
  // The last queries see the most keys. They go first, so that the end is not waiting for them.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * E::kOwned;
  const auto q = rows_of_q(heads, run, q_base, h);
  const auto dy = rows_of_out(heads, run, dout, h);
  const BackwardRoom<E> room(dynamic_shared<typename E::Cell>());
  E::template copy<E::kOwned>(room.owned(0), q, first);
  E::template copy<E::kOwned>(room.owned(1), dy, first);
  cp_async_commit();
  BackwardSums<E> sums;
  add_pairs<E, Side::Queries>(sums, heads, run, first, q, rows_of_kv(heads, kv, h / heads.r, 0),
                              rows_of_kv(heads, kv, h / heads.r, 1), dy,
                              statistics + first_statistic(heads, padded(run.count), h));
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
  const int g = static_cast<int>(blockIdx.y);
  // The first keys are seen by the most queries: they go first.
  const int first = static_cast<int>(blockIdx.x) * E::kOwned;
  const auto k = rows_of_kv(heads, kv, g, 0);
  const auto v = rows_of_kv(heads, kv, g, 1);
  const BackwardRoom<E> room(dynamic_shared<typename E::Cell>());
  E::template copy<E::kOwned>(room.owned(0), k, first);
  E::template copy<E::kOwned>(room.owned(1), v, first);
  cp_async_commit();
  BackwardSums<E> sums;
  for (int head = 0; head < 2 * heads.r; ++head) {  // each with two runs
    // Chosen so, and not by an index: parameters that are indexed are copied to memory.
    const QueryRun run = head % 2 == 0 ? queries.runs[0] : queries.runs[1];
    const Statistic* statistics = head % 2 == 0 ? queries.statistics[0] : queries.statistics[1];
    if (run.count == 0) continue;
    const int h = g * heads.r + head / 2;
    if (head > 0) __syncthreads();  // everyone is done with the stages of the head before
    add_pairs<E, Side::Keys>(sums, heads, run, first, rows_of_q(heads, run, q, h), k, v,
                             rows_of_out(heads, run, dout, h),
                             statistics + first_statistic(heads, padded(run.count), h));
  }
  if (first + E::team_row() >= heads.Tk) return;
  const auto seen = [&](int r) { return first + E::row(r) < queries.end(); };
  E::write(rows_of_kv(heads, dkv, g, 0), first, sums.by_slopes,
           [&](int r, float sum) { return seen(r) ? sum * heads.scale : -0.0f; });
  E::write(rows_of_kv(heads, dkv, g, 1), first, sums.by_weights,
           [&](int r, float sum) { return seen(r) ? sum : -0.0f; });
}

/// dq and dkv of To, in one tensor with q and kv or apart.
template <class E, class To, class T = typename E::Element>
void backward(const Ctx& ctx, const AttentionPieceShape& s, const AttentionPlace& place,
              const Heads& heads, To* dq, To* dkv, const T* dout, const T* q, const T* kv,
              const T* out, const float* lse) {
  static_assert(kPadTokens % E::kOwned == 0 && kPadTokens % E::kPartners == 0);
  Scratch scratch(ctx);
  Queries queries{};
  for (int i = 0; i < 2; ++i) {
    queries.runs[i] = runs_of(s, place)[static_cast<size_t>(i)];
    const int tokens = padded(queries.runs[i].count);
    queries.statistics[i] = scratch.take<Statistic>(s.B * s.NH * tokens);
    launch(ctx, statistics_kernel<E>,
           {.x = tokens / kStatisticThreads * kTokenThreads<T>, .y = s.NH, .z = s.B},
           kStatisticThreads, 0, heads, queries.runs[i], queries.statistics[i], dout, out, lse);
  }
  launch(ctx, keys_kernel<E, To>, grid_of<E>(s.B, s.NKV, s.Tk), E::kThreads,
         BackwardRoom<E>::kBytes, heads, queries, dkv, dout, q, kv);
  for (int i = 0; i < 2; ++i)
    launch(ctx, queries_kernel<E, To>, grid_of<E>(s.B, s.NH, queries.runs[i].count), E::kThreads,
           BackwardRoom<E>::kBytes, heads, queries.runs[i], queries.statistics[i], dq, dout, q, kv);
}

/// By engine E. dqkv, qkv (B,Tq,(NH+2*NKV)*HS); dout, out (B,Tq,NH*HS); lse (B,NH,Tq)
template <class E>
void attend_backward(const Ctx& ctx, const AttentionPieceShape& s, Tensor dqkv, Tensor dout,
                     Tensor qkv, Tensor out, Tensor lse) {
  using T = typename E::Element;
  const T* x = device_data<T>(qkv);
  T* dx = device_data<T>(dqkv);
  backward<E>(ctx, s, whole_sequence(s.Tq), heads_of(s, true), dx, dx, device_data<T>(dout), x, x,
              device_data<T>(out), device_data<float>(lse));
}

/// By engine E. dq (B,Tq,NH*HS), dkv (B,Tk,2*NKV*HS), both F32; q, kv the same in E's dtype; dout,
/// out as q; lse (B,NH,Tq)
template <class E>
void attend_piece_backward(const Ctx& ctx, const AttentionPieceShape& s, Tensor dq, Tensor dkv,
                           Tensor dout, Tensor q, Tensor kv, Tensor out, Tensor lse,
                           const AttentionPlace& place) {
  using T = typename E::Element;
  backward<E>(ctx, s, place, heads_of(s, false), device_data<float>(dq), device_data<float>(dkv),
              device_data<T>(dout), device_data<T>(q), device_data<T>(kv), device_data<T>(out),
              device_data<float>(lse));
}

}  // namespace ladder::LADDER_CUDA
