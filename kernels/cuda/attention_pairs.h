// Attention backward: pairs of owned rows and partners, and what they add to the sums of a block.
// attention_backward.h says who owns what.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention.h"
#include "launch.h"
#include "ptx.h"

namespace ladder::LADDER_CUDA {

/// What backward needs to know of a query.
struct alignas(8) Statistic {
  float lse;  ///< an exponent of the engine. Past the last token of a run it is infinite, so P is 0
  float D;    ///< dout . out, which is sum_u P[t,u] (dout_t . v_u)
};

/// Statistics of a run of a head, padded to whole blocks of either kernel.
constexpr int kPadTokens = 128;
constexpr int padded(int tokens) { return (tokens + kPadTokens - 1) / kPadTokens * kPadTokens; }

/// What a thread block owns in backward.
enum class Side : uint8_t { Queries, Keys };

template <class E>
using BackwardRoom = Room<E, 2>;

/// Queries see no later keys, and none behind the last one. ahead: tokens from the first column to
/// the first row. left: partners from the first column on.
template <class E, Side kSide>
__device__ void mask(typename E::Scores& s, int ahead, int left) {
#pragma unroll
  for (int c = 0; c < E::Scores::kColumns; ++c)
#pragma unroll
    for (int r = 0; r < E::kRows; ++r) {
      const int later = ahead + E::row(r) - E::column(c);  // the row than the column
      if (kSide == Side::Queries ? later < 0 || left <= E::column(c) : later > 0)
        s(r, c) = -INFINITY;
    }
}

/// Turns S into P. statistic_of(r, c) is that of the pair's query.
template <class E, class F>
__device__ void to_weights(const Heads& heads, typename E::Scores& s, F&& statistic_of) {
#pragma unroll
  for (int c = 0; c < E::Scores::kColumns; ++c)
#pragma unroll
    for (int r = 0; r < E::kRows; ++r)
      s(r, c) = E::exp_of_score(heads, s(r, c), statistic_of(r, c).lse);
}

/// Turns dP into dS = P (dP - D).
template <class E, class F>
__device__ void to_slopes(typename E::Scores& dp, typename E::Scores& p, F&& statistic_of) {
#pragma unroll
  for (int c = 0; c < E::Scores::kColumns; ++c)
#pragma unroll
    for (int r = 0; r < E::kRows; ++r) dp(r, c) = p(r, c) * (dp(r, c) - statistic_of(r, c).D);
}

/// The sums of a block: dK by slopes and dV by weights, or dQ by slopes alone.
template <class E>
struct BackwardSums {
  typename E::Sums by_slopes{}, by_weights{};
};

/// Adds to `sums` the pairs of a block's owned rows with one run of one head.
template <class E, Side kSide, class T = typename E::Element>
__device__ void add_pairs(BackwardSums<E>& sums, const Heads& heads, const QueryRun& run, int first,
                          const HeadRows<const T>& q, const HeadRows<const T>& k,
                          const HeadRows<const T>& v, const HeadRows<const T>& dy,
                          const Statistic* statistics) {
  constexpr bool kKeys = kSide == Side::Keys;
  const int mine = first + E::team_row();  // of this team
  const int rows = kKeys ? heads.Tk : run.count;
  // Partners that have a pair with a row of the block. `begin` is that of a whole tile.
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
    begin_turn<E>(partner, begin, end, stage, fetch);
    if (mine >= rows) continue;
#pragma unroll 1  // loads ahead of time would take registers that the sums need
    for (int slice = 0; slice < E::kPartners; slice += E::kSlice) {
      const int start = partner + slice;
      const Pairs pairs = kKeys ? Pairs{run.lead + start, E::kSlice, mine, E::kTeamRows}
                                : Pairs{run.lead + mine, E::kTeamRows, start, E::kSlice};
      // Queries behind the last one have no weight in any case: their lse is infinite.
      const int left = kKeys ? E::kSlice : heads.Tk - start;
      if (!pairs.any() || left <= 0) continue;
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
      if (!pairs.all() || left < E::kSlice) mask<E, kSide>(p, ahead, left);
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

}  // namespace ladder::LADDER_CUDA
