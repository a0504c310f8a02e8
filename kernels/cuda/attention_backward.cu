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
// with dS = P (dP - D), and 1 / sqrt(HS) multiplied in at the end.
#include "kernels/cuda/attention_engines.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {
namespace {

/// What backward needs to know of a query.
struct alignas(8) Statistic {
  float lse;  ///< in units of log 2; infinite past the last token, so that P is 0 there
  float D;    ///< dout . out, which is sum_u P[t,u] (dout_t . v_u)
};

/// Statistics of a head, padded to whole blocks of either kernel.
constexpr int kPadTokens = 128;
int padded(int64_t T) { return static_cast<int>(ceil_div(T, kPadTokens)) * kPadTokens; }

constexpr int kStatisticThreads = 256;

/// A warp computes one statistic.   statistics (B,NH,tokens)
template <class T>
__global__ void statistics_kernel(Heads heads, Statistic* statistics, int tokens, const T* dout,
                                  const T* out, const float* lse) {
  constexpr int kTokens = kStatisticThreads / kWarp;
  const int t = static_cast<int>(blockIdx.x) * kTokens + warp_index();
  const auto dy = rows_of_out(heads, dout);
  const auto y = rows_of_out(heads, out);
  Statistic statistic{INFINITY, 0.0f};
  if (t < heads.T) {
    float D = 0;
    for (int d = lane_index(); d < heads.HS; d += kWarp)
      D = fmaf(to_float(dy[t][d]), to_float(y[t][d]), D);
    statistic = {lse[first_statistic(heads, heads.T) + t] * kLog2e, warp_sum(D)};
  }
  if (lane_index() == 0) statistics[first_statistic(heads, tokens) + t] = statistic;
}

enum class Side : uint8_t { Queries, Keys };

template <class E>
using BackwardRoom = Room<E, 2>;

/// S becomes P: 0 where a query must not look. `cut`: there are such pairs. ahead: tokens from the
/// first column to the first row. statistic_of(r, c): of a pair's query.
template <class E, Side kSide, class F>
__device__ void to_weights(typename E::Scores& s, bool cut, int ahead, float unit,
                           F&& statistic_of) {
#pragma unroll
  for (int c = 0; c < E::Scores::kColumns; ++c)
#pragma unroll
    for (int r = 0; r < E::kRows; ++r) {
      const int later = ahead + E::row(r) - E::column(c);  // the row than the column
      const bool hidden = cut && (kSide == Side::Queries ? later < 0 : later > 0);
      s(r, c) = hidden ? 0.0f : exp2f(fmaf(s(r, c), unit, -statistic_of(r, c).lse));
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

/// dqkv, qkv (B,T,3*NH*HS); dout (B,T,NH*HS); statistics (B,NH,tokens)
template <class E, Side kSide, class T = typename E::Element>
__global__ void __launch_bounds__(E::kThreads)
    backward_kernel(Heads heads, T* dqkv, const T* dout, const T* qkv, const Statistic* statistics,
                    int tokens) {
  constexpr bool kKeys = kSide == Side::Keys;
  using Sums = typename E::Sums;
  const auto q = rows_of_part(heads, qkv, 0);
  const auto k = rows_of_part(heads, qkv, 1);
  const auto v = rows_of_part(heads, qkv, 2);
  const auto dy = rows_of_out(heads, dout);
  statistics += first_statistic(heads, tokens);

  // The first keys are seen by the most queries, the last queries see the most keys: those go
  // first, so that the end is not waiting for them.
  const int block = static_cast<int>(kKeys ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
  const int first = block * E::kOwned;
  const int mine = first + E::first_row();  // of this warp
  const int begin = kKeys ? first : 0;
  const int end = kKeys ? heads.T : std::min(heads.T, first + E::kOwned);

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

  E::template copy<E::kOwned>(room.owned(0), kKeys ? k : q, first);
  E::template copy<E::kOwned>(room.owned(1), kKeys ? v : dy, first);
  fetch(begin, 0);
  Statistic own_statistics[E::kRows];
#pragma unroll
  for (int r = 0; r < E::kRows; ++r)
    if (!kKeys) own_statistics[r] = statistics[first + E::row(r)];

  Sums by_slopes{}, by_weights{};  // dK and dV, or dQ and nothing
  for (int partner = begin, stage = 0; partner < end; partner += E::kPartners, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads();  // this stage is there, and everyone is done with the other
    if (partner + E::kPartners < end) fetch(partner + E::kPartners, stage ^ 1);
    const Pairs pairs = kKeys ? Pairs{partner, E::kPartners, mine, E::kWarpRows}
                              : Pairs{mine, E::kWarpRows, partner, E::kPartners};
    if (mine >= heads.T || !pairs.any()) continue;
    const auto statistic_of = [&](int r, int c) {
      return kKeys ? partner_statistics[stage][E::column(c)] : own_statistics[r];
    };
    auto p = E::scores(room.owned(0), room.partners(stage, 0));
    to_weights<E, kSide>(p, !pairs.all(), first - partner, heads.unit(), statistic_of);
    if (kKeys) E::accumulate(by_weights, p, room.partners(stage, 1), room.exchange());
    auto ds = E::scores(room.owned(1), room.partners(stage, 1));
    to_slopes<E>(ds, p, statistic_of);
    E::accumulate(by_slopes, ds, room.partners(stage, 0), room.exchange());
  }
  if (mine >= heads.T) return;
  E::write(rows_of_part(heads, dqkv, kKeys ? 1 : 0), first, by_slopes,
           [&](int) { return heads.scale; });
  if (kKeys) E::write(rows_of_part(heads, dqkv, 2), first, by_weights, [](int) { return 1.0f; });
}

/// 128 owned rows a block, 32 partners at a time: two sums and two scores in registers.
template <class T, int kHS>
using BackwardMma = Mma<T, kHS, kHS <= 64 ? 2 : 1, kHS <= 64 ? 4 : 8, 32>;

}  // namespace

void attention_backward(const Ctx& ctx, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                        Tensor lse) {
  const AttentionShape shape = check_attention_backward(dqkv, dout, qkv, out, lse);
  check_aligned({dqkv, dout, qkv, out});
  const Heads heads = heads_of(shape);
  const int tokens = padded(shape.T);
  auto* statistics = Scratch(ctx).take<Statistic>(shape.B * shape.NH * tokens);
  with_engine<BackwardMma>(qkv.dtype, shape.HS, [&]<class E>(Type<E>) {
    using T = typename E::Element;
    static_assert(kPadTokens % E::kOwned == 0 && kPadTokens % E::kPartners == 0);
    const T* dy = device_data<T>(dout);
    const T* x = device_data<T>(qkv);
    T* dx = device_data<T>(dqkv);
    launch(ctx, statistics_kernel<T>,
           {.x = tokens / (kStatisticThreads / kWarp), .y = shape.NH, .z = shape.B},
           kStatisticThreads, 0, heads, statistics, tokens, dy, device_data<T>(out),
           device_data<float>(lse));
    launch(ctx, backward_kernel<E, Side::Keys>, grid_of<E>(shape), E::kThreads,
           BackwardRoom<E>::kBytes, heads, dx, dy, x, statistics, tokens);
    launch(ctx, backward_kernel<E, Side::Queries>, grid_of<E>(shape), E::kThreads,
           BackwardRoom<E>::kBytes, heads, dx, dy, x, statistics, tokens);
  });
}

}  // namespace ladder::LADDER_CUDA
