// Causal attention, forward: arXiv 2205.14135, 2307.08691. A thread block owns queries and walks
// over the keys before them, with the online softmax that kernels/cpu/attention_forward.cpp
// explains. For the scores so far a row holds the largest (m), the sum of exp(S - m) (l), and the
// sum of exp(S - m) v (o). When m rises, l and o shrink by one factor.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention_arguments.h"
#include "kernels/cuda/convert.h"
#include "kernels/cuda/warp.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// What a thread knows of its rows so far.
template <class E>
struct Seen {
  float m[E::kRows];  ///< the largest score, as an exponent of the engine
  float l[E::kRows];  ///< the sum over this thread's columns
  typename E::Sums o{};

  __device__ Seen() {
#pragma unroll
    for (int r = 0; r < E::kRows; ++r) {
      m[r] = -INFINITY;
      l[r] = 0;
    }
  }
};

/// Masks keys that a query does not see, and those behind the last key. ahead: tokens from the
/// first key to the first query. left: keys from the first on.
template <class E>
__device__ void mask(typename E::Scores& s, int ahead, int left) {
#pragma unroll
  for (int r = 0; r < E::kRows; ++r)
#pragma unroll
    for (int c = 0; c < E::Scores::kColumns; ++c)
      if (ahead + E::row(r) < E::column(c) || left <= E::column(c)) s(r, c) = -INFINITY;
}

/// Raises m to the scores, turns the scores into exp(S - m), and updates l and o. A row without a
/// score keeps l = 0.
template <class E>
__device__ void online_softmax(const Heads& heads, Seen<E>& seen, typename E::Scores& s) {
#pragma unroll
  for (int r = 0; r < E::kRows; ++r) {
    float largest = s(r, 0);
#pragma unroll
    for (int c = 1; c < E::Scores::kColumns; ++c) largest = fmaxf(largest, s(r, c));
    largest = fmaxf(seen.m[r], E::exponent(heads, E::row_max(largest)));
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float alpha = E::exp_of_exponent(seen.m[r], base);
    seen.m[r] = largest;
    float sum = 0;
#pragma unroll
    for (int c = 0; c < E::Scores::kColumns; ++c) {
      s(r, c) = E::exp_of_score(heads, s(r, c), base);
      sum += s(r, c);
    }
    seen.l[r] = fmaf(alpha, seen.l[r], sum);
#pragma unroll
    for (int c = 0; c < E::Sums::kColumns; ++c) seen.o(r, c) *= alpha;
  }
}

/// Results of a whole sequence: out = o / l;  lse = m + log l.
template <class T>
struct Finished {
  T* out;
  float* lse;

  template <class E>
  __device__ void take(const Heads& heads, const QueryRun& run, Seen<E>& seen, int first) const {
    const int h = static_cast<int>(blockIdx.y);
    float* to = lse + first_statistic(heads, heads.Tq, h);
#pragma unroll
    for (int r = 0; r < E::kRows; ++r) {
      const int query = first + E::row(r);
      if (E::column(0) == 0 && query < run.count)
        to[query] = seen.m[r] / E::kPerNatural + logf(seen.l[r]);
      seen.l[r] = 1.0f / seen.l[r];
    }
    E::write(rows_of_out(heads, run, out, h), first, seen.o,
             [&](int r, float sum) { return sum * seen.l[r]; });
  }
};

/// Results of a piece, for a later merge. o = -0 where no key was seen.
struct Partial {
  float *o, *m, *l;

  template <class E>
  __device__ void take(const Heads& heads, const QueryRun& run, Seen<E>& seen, int first) const {
    const int h = static_cast<int>(blockIdx.y);
    const int64_t at = first_statistic(heads, heads.Tq, h) + run.row;
#pragma unroll
    for (int r = 0; r < E::kRows; ++r) {
      const int query = first + E::row(r);
      if (E::column(0) != 0 || query >= run.count) continue;
      m[at + query] = seen.m[r] / E::kPerNatural;
      l[at + query] = seen.l[r];
    }
    // No factor `l == 0 ? -0 : 1`: ptxas 13.0 would make +0 or 1 of it (FSET.BF).
    E::write(rows_of_out(heads, run, o, h), first, seen.o,
             [&](int r, float sum) { return seen.l[r] == 0 ? -0.0f : sum; });
  }
};

template <class E>
using ForwardRoom = Room<E, 1>;

/// q and kv as `heads` says.
template <class E, class Results, class T = typename E::Element>
__global__ void __launch_bounds__(E::kThreads, E::kBlocks)
    forward_kernel(Heads heads, QueryRun run, Results results, const T* q_base, const T* kv) {
  take_document(heads, run);
  const int h = static_cast<int>(blockIdx.y);
  const auto q = rows_of_q(heads, run, q_base, h);
  const auto k = rows_of_kv(heads, kv, h / heads.r, 0);
  const auto v = rows_of_kv(heads, kv, h / heads.r, 1);
  // The last queries see the most keys. They go first, so that no long block starts at the end.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * E::kOwned;
  if (first >= run.count) return;  // of a document that is not the longest
  const int end = std::min(heads.Tk, run.lead + std::min(run.count, first + E::kOwned));
  const int mine = first + E::team_row();  // of this team
  const ForwardRoom<E> room(dynamic_shared<typename E::Cell>());
  const auto fetch = [&](int key, int stage) {
    E::template copy<E::kPartners>(room.partners(stage, 0), k, key);
    E::template copy<E::kPartners>(room.partners(stage, 1), v, key);
    cp_async_commit();
  };

  E::template copy<E::kOwned>(room.owned(0), q, first);
  cp_async_commit();
  Seen<E> seen;
  typename E::Owned owned;
  if (end > 0) {
    fetch(0, 0);
    E::template wait_for_copies<1>();  // for the queries, not for the keys
    __syncthreads();
    owned = E::owned(room.owned(0));
  }
  for (int key = 0, stage = 0; key < end; key += E::kPartners, stage ^= 1) {
    begin_turn<E>(key, 0, end, stage, fetch);
    if (mine >= run.count) continue;
#pragma unroll
    for (int slice = 0; slice < E::kPartners; slice += E::kSlice) {
      const Pairs pairs{run.lead + mine, E::kTeamRows, key + slice, E::kSlice};
      if (!pairs.any()) break;
      typename E::Scores s;
      E::start_scores(s, owned, room.partners(stage, 0, slice));
      E::template wait<0>(s);
      const int left = heads.Tk - key - slice;
      if (!pairs.all() || left < E::kSlice) mask<E>(s, run.lead + first - key - slice, left);
      online_softmax<E>(heads, seen, s);
      E::start_accumulate(seen.o, s, room.partners(stage, 1, slice), room.exchange());
      E::template wait<0>(seen.o);
    }
  }
  if (mine >= run.count) return;
#pragma unroll
  for (int r = 0; r < E::kRows; ++r) seen.l[r] = E::row_sum(seen.l[r]);
  results.template take<E>(heads, run, seen, first);
}

/// By engine E. out (B,Tq,NH*HS); lse (B,NH,Tq); qkv (B,Tq,(NH+2*NKV)*HS)
template <class E>
void attend_forward(const Ctx& ctx, const Extents& s, Tensor out, Tensor lse, Tensor qkv) {
  using T = typename E::Element;
  const T* x = device_data<T>(qkv);
  in_parts(sequences_of(ctx, s.B, s.Tq), kMaxGrid.z, [&](const Sequences& part) {
    launch(ctx, forward_kernel<E, Finished<T>>, grid_of<E>(part.count, s.NH, part.T), E::kThreads,
           ForwardRoom<E>::kBytes, heads_of(s, true, part), runs_of(s, whole_sequence(s.Tq))[0],
           Finished<T>{device_data<T>(out), device_data<float>(lse)}, x, x);
  });
}

/// By engine E. o (B,Tq,NH*HS), m, l (B,NH,Tq); q (B,Tq,NH*HS); kv (B,Tk,2*NKV*HS)
template <class E>
void attend_piece_forward(const Ctx& ctx, const Extents& s, Tensor o, Tensor m, Tensor l, Tensor q,
                          Tensor kv, const AttentionPositions& place) {
  using T = typename E::Element;
  const Partial results{device_data<float>(o), device_data<float>(m), device_data<float>(l)};
  for (const QueryRun& run : runs_of(s, place))
    launch(ctx, forward_kernel<E, Partial>, grid_of<E>(s.B, s.NH, run.count), E::kThreads,
           ForwardRoom<E>::kBytes, heads_of(s, false), run, results, device_data<T>(q),
           device_data<T>(kv));
}

}  // namespace ladder::LADDER_CUDA
