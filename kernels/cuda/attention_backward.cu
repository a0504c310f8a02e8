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
#include "kernels/cuda/attention_engines.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {
namespace {

/// What backward needs to know of a query.
struct alignas(8) Statistic {
  float lse;  ///< infinite past the last token of a run, so that P is 0 there
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
    const QueryRun& last = runs[runs[1].count > 0 ? 1 : 0];
    return last.lead + last.count;
  }
};

constexpr int kStatisticThreads = kPadTokens;

/// Threads that compute one statistic. In FP32 one sums as Fma does: where one key has all the
/// weight, out is its v, and dP - D exactly 0, not a rounding that large keys would magnify.
template <class T>
constexpr int kTokenThreads = sizeof(T) == 4 ? 1 : kWarp;

/// Statistics of run `i`.
template <class T>
__global__ void statistics_kernel(Heads heads, Queries queries, int i, const T* dout, const T* out,
                                  const float* lse) {
  constexpr int kThreads = kTokenThreads<T>;
  const QueryRun run = queries.runs[i];
  const int thread =
      static_cast<int>(blockIdx.x) * kStatisticThreads + static_cast<int>(threadIdx.x);
  const int t = thread / kThreads, lane = thread % kThreads;
  const int h = static_cast<int>(blockIdx.y);
  const auto dy = rows_of_out(heads, run, dout, h);
  const auto y = rows_of_out(heads, run, out, h);
  Statistic statistic{INFINITY, 0.0f};
  if (t < run.count) {
    float D = 0;
    for (int d = lane; d < heads.HS; d += kThreads)
      D = fmaf(to_float(dy[t][d]), to_float(y[t][d]), D);
    if (kThreads > 1) D = warp_sum(D);
    statistic = {lse[first_statistic(heads, heads.Tq, h) + run.row + t], D};
  }
  if (lane == 0)
    queries.statistics[i][first_statistic(heads, padded(run.count), h) + t] = statistic;
}

enum class Side : uint8_t { Queries, Keys };

template <class E>
using BackwardRoom = Room<E, 2>;

/// S becomes P: 0 where a query must not look. `cut`: there are such pairs. ahead: tokens from the
/// first column to the first row. statistic_of(r, c): of a pair's query.
template <class E, Side kSide, class F>
__device__ void to_weights(typename E::Scores& s, bool cut, int ahead, float scale,
                           F&& statistic_of) {
#pragma unroll
  for (int c = 0; c < E::Scores::kColumns; ++c)
#pragma unroll
    for (int r = 0; r < E::kRows; ++r) {
      const int later = ahead + E::row(r) - E::column(c);  // the row than the column
      const bool hidden = cut && (kSide == Side::Queries ? later < 0 : later > 0);
      s(r, c) = hidden ? 0.0f : exp_of_difference(s(r, c) * scale, statistic_of(r, c).lse);
    }
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
  const int mine = first + E::first_row();  // of this warp
  const int owned = kKeys ? heads.Tk : run.count;
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
  if (begin < end) fetch(begin, 0);
  Statistic own_statistics[E::kRows];
#pragma unroll
  for (int r = 0; r < E::kRows; ++r)
    if (!kKeys) own_statistics[r] = statistics[first + E::row(r)];

  for (int partner = begin, stage = 0; partner < end; partner += E::kPartners, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads();  // this stage is there, and everyone is done with the other
    if (partner + E::kPartners < end) fetch(partner + E::kPartners, stage ^ 1);
    const Pairs pairs = kKeys ? Pairs{run.lead + partner, E::kPartners, mine, E::kWarpRows}
                              : Pairs{run.lead + mine, E::kWarpRows, partner, E::kPartners};
    if (mine >= owned || !pairs.any()) continue;
    const auto statistic_of = [&](int r, int c) {
      return kKeys ? partner_statistics[stage][E::column(c)] : own_statistics[r];
    };
    // Tokens from the first partner to the first row of the block.
    const int ahead = kKeys ? first - partner - run.lead : run.lead + first - partner;
    auto p = E::scores(room.owned(0), room.partners(stage, 0));
    to_weights<E, kSide>(p, !pairs.all(), ahead, heads.scale, statistic_of);
    if (kKeys) E::accumulate(sums.by_weights, p, room.partners(stage, 1), room.exchange());
    auto ds = E::scores(room.owned(1), room.partners(stage, 1));
    to_slopes<E>(ds, p, statistic_of);
    E::accumulate(sums.by_slopes, ds, room.partners(stage, 0), room.exchange());
  }
}

/// dq of the queries of run `i`. dq, q, kv as `heads` says; dout (B,Tq,NH*HS)
template <class E, class To, class T = typename E::Element>
__global__ void __launch_bounds__(E::kThreads)
    queries_kernel(Heads heads, Queries queries, int i, To* dq, const T* dout, const T* q_base,
                   const T* kv) {
  const QueryRun run = queries.runs[i];
  const int h = static_cast<int>(blockIdx.y);
  // The last queries see the most keys. They go first, so that the end is not waiting for them.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * E::kOwned;
  const auto q = rows_of_q(heads, run, q_base, h);
  const auto dy = rows_of_out(heads, run, dout, h);
  const BackwardRoom<E> room(dynamic_shared<typename E::Cell>());
  E::template copy<E::kOwned>(room.owned(0), q, first);
  E::template copy<E::kOwned>(room.owned(1), dy, first);
  BackwardSums<E> sums;
  add_pairs<E, Side::Queries>(sums, heads, run, first, q, rows_of_kv(heads, kv, h / heads.r, 0),
                              rows_of_kv(heads, kv, h / heads.r, 1), dy,
                              queries.statistics[i] + first_statistic(heads, padded(run.count), h));
  if (first + E::first_row() >= run.count) return;
  E::write(rows_of_q(heads, run, dq, h), first, sums.by_slopes, [&](int r) {
    return run.lead + first + E::row(r) < 0 ? -0.0f : heads.scale;  // -0: no key was seen
  });
}

/// dk and dv. dkv, q, kv as `heads` says; dout (B,Tq,NH*HS)
template <class E, class To, class T = typename E::Element>
__global__ void __launch_bounds__(E::kThreads)
    keys_kernel(Heads heads, Queries queries, To* dkv, const T* dout, const T* q, const T* kv) {
  const int g = static_cast<int>(blockIdx.y);
  // The first keys are seen by the most queries: they go first.
  const int first = static_cast<int>(blockIdx.x) * E::kOwned;
  const auto k = rows_of_kv(heads, kv, g, 0);
  const auto v = rows_of_kv(heads, kv, g, 1);
  const BackwardRoom<E> room(dynamic_shared<typename E::Cell>());
  E::template copy<E::kOwned>(room.owned(0), k, first);
  E::template copy<E::kOwned>(room.owned(1), v, first);
  BackwardSums<E> sums;
  for (int head = 0; head < 2 * heads.r; ++head) {  // each with two runs
    const QueryRun run = queries.runs[head % 2];
    if (run.count == 0) continue;
    const int h = g * heads.r + head / 2;
    if (head > 0) __syncthreads();  // everyone is done with the stages of the head before
    add_pairs<E, Side::Keys>(
        sums, heads, run, first, rows_of_q(heads, run, q, h), k, v,
        rows_of_out(heads, run, dout, h),
        queries.statistics[head % 2] + first_statistic(heads, padded(run.count), h));
  }
  if (first + E::first_row() >= heads.Tk) return;
  const auto factor = [&](float scale) {
    return [=, &queries](int r) {
      return first + E::row(r) < queries.end() ? scale : -0.0f;  // -0: no query sees this key
    };
  };
  E::write(rows_of_kv(heads, dkv, g, 0), first, sums.by_slopes, factor(heads.scale));
  E::write(rows_of_kv(heads, dkv, g, 1), first, sums.by_weights, factor(1.0f));
}

/// 128 owned rows a block, 32 partners at a time: two sums and two scores in registers.
template <class T, int kHS>
using BackwardMma = Mma<T, kHS, kHS <= 64 ? 2 : 1, kHS <= 64 ? 4 : 8, 32>;

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
    launch(ctx, statistics_kernel<T>,
           {.x = tokens / kStatisticThreads * kTokenThreads<T>, .y = s.NH, .z = s.B},
           kStatisticThreads, 0, heads, queries, i, dout, out, lse);
  }
  launch(ctx, keys_kernel<E, To>, grid_of<E>(s.B, s.NKV, s.Tk), E::kThreads,
         BackwardRoom<E>::kBytes, heads, queries, dkv, dout, q, kv);
  for (int i = 0; i < 2; ++i)
    launch(ctx, queries_kernel<E, To>, grid_of<E>(s.B, s.NH, queries.runs[i].count), E::kThreads,
           BackwardRoom<E>::kBytes, heads, queries, i, dq, dout, q, kv);
}

}  // namespace

void attention_backward(const Ctx& ctx, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                        Tensor lse) {
  const AttentionShape whole = check_attention_backward(dqkv, dout, qkv, out, lse);
  const AttentionPieceShape s = piece_of(whole);
  check_aligned({dqkv, dout, qkv, out});
  with_engine<BackwardMma>(qkv.dtype, s.HS, [&]<class E>(Type<E>) {
    using T = typename E::Element;
    const T* x = device_data<T>(qkv);
    T* dx = device_data<T>(dqkv);
    backward<E>(ctx, s, whole_sequence(whole.T), heads_of(s, true), dx, dx, device_data<T>(dout), x,
                x, device_data<T>(out), device_data<float>(lse));
  });
}

void attention_piece_backward(const Ctx& ctx, Tensor dq, Tensor dkv, Tensor dout, Tensor q,
                              Tensor kv, Tensor out, Tensor lse, const AttentionPlace& place) {
  const AttentionPieceShape s =
      check_attention_piece_backward(dq, dkv, dout, q, kv, out, lse, place);
  check_aligned({dq, dkv, dout, q, kv, out});
  with_engine<BackwardMma>(q.dtype, s.HS, [&]<class E>(Type<E>) {
    using T = typename E::Element;
    backward<E>(ctx, s, place, heads_of(s, false), device_data<float>(dq), device_data<float>(dkv),
                device_data<T>(dout), device_data<T>(q), device_data<T>(kv), device_data<T>(out),
                device_data<float>(lse));
  });
}

}  // namespace ladder::LADDER_CUDA
