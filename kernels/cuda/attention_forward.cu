// Causal attention, forward: arXiv 2205.14135, 2307.08691. A thread block owns queries and walks
// over the keys before them, with the online softmax that kernels/cpu/attention.cpp explains: of
// the scores so far a row knows the largest (m), the sum of exp(S - m) (l), and of
// exp(S - m) v (o); a larger score makes all three smaller by one factor.
#include "kernels/cuda/attention_engines.h"
#include "kernels/cuda/table.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {
namespace {

/// What a thread has seen of its rows.
template <class E>
struct Seen {
  float m[E::kRows];  ///< the largest score, not yet divided by sqrt(HS)
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

/// Queries see no later keys. ahead: tokens from the first key to the first query.
template <class E>
__device__ void mask(typename E::Scores& s, int ahead) {
#pragma unroll
  for (int r = 0; r < E::kRows; ++r)
#pragma unroll
    for (int c = 0; c < E::Scores::kColumns; ++c)
      if (ahead + E::row(r) < E::column(c)) s(r, c) = -INFINITY;
}

/// Scores become exp(S - m); m rises to them, and l and o follow.
template <class E>
__device__ void online_softmax(Seen<E>& seen, typename E::Scores& s, float unit) {
#pragma unroll
  for (int r = 0; r < E::kRows; ++r) {
    float largest = s(r, 0);
#pragma unroll
    for (int c = 1; c < E::Scores::kColumns; ++c) largest = fmaxf(largest, s(r, c));
    largest = fmaxf(seen.m[r], E::row_max(largest));
    const float alpha = exp2f((seen.m[r] - largest) * unit);
    seen.m[r] = largest;
    float sum = 0;
#pragma unroll
    for (int c = 0; c < E::Scores::kColumns; ++c) {
      s(r, c) = exp2f(fmaf(s(r, c), unit, -largest * unit));
      sum += s(r, c);
    }
    seen.l[r] = fmaf(alpha, seen.l[r], sum);
#pragma unroll
    for (int c = 0; c < E::Sums::kColumns; ++c) seen.o(r, c) *= alpha;
  }
}

/// out = o / l;  lse = m / sqrt(HS) + log l.
template <class E, class T>
__device__ void finish(const Heads& heads, Seen<E>& seen, int first, const Rows<T>& out,
                       float* lse) {
#pragma unroll
  for (int r = 0; r < E::kRows; ++r) {
    seen.l[r] = E::row_sum(seen.l[r]);
    const int query = first + E::row(r);
    if (E::column(0) == 0 && query < heads.T)
      lse[query] = fmaf(seen.m[r], heads.scale, logf(seen.l[r]));
  }
  E::write(out, first, seen.o, [&](int r) { return 1.0f / seen.l[r]; });
}

template <class E>
using ForwardRoom = Room<E, 1>;

/// out (B,T,NH*HS); lse (B,NH,T); qkv (B,T,3*NH*HS)
template <class E, class T = typename E::Element>
__global__ void __launch_bounds__(E::kThreads)
    forward_kernel(Heads heads, T* out, float* lse, const T* qkv) {
  const auto q = rows_of_part(heads, qkv, 0);
  const auto k = rows_of_part(heads, qkv, 1);
  const auto v = rows_of_part(heads, qkv, 2);
  // The last queries see the most keys. They go first, so that the end is not waiting for them.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * E::kOwned;
  const int end = std::min(heads.T, first + E::kOwned);
  const int mine = first + E::first_row();  // of this warp
  const ForwardRoom<E> room(dynamic_shared<typename E::Cell>());
  const auto fetch = [&](int key, int stage) {
    E::template copy<E::kPartners>(room.partners(stage, 0), k, key);
    E::template copy<E::kPartners>(room.partners(stage, 1), v, key);
    cp_async_commit();
  };

  E::template copy<E::kOwned>(room.owned(0), q, first);
  fetch(0, 0);
  Seen<E> seen;
  for (int key = 0, stage = 0; key < end; key += E::kPartners, stage ^= 1) {
    cp_async_wait<0>();
    __syncthreads();  // this stage is there, and everyone is done with the other
    if (key + E::kPartners < end) fetch(key + E::kPartners, stage ^ 1);
    const Pairs pairs{mine, E::kWarpRows, key, E::kPartners};
    if (mine >= heads.T || !pairs.any()) continue;
    auto s = E::scores(room.owned(0), room.partners(stage, 0));
    if (!pairs.all()) mask<E>(s, first - key);
    online_softmax<E>(seen, s, heads.unit());
    E::accumulate(seen.o, s, room.partners(stage, 1), room.exchange());
  }
  if (mine < heads.T)
    finish<E>(heads, seen, first, rows_of_out(heads, out), lse + first_statistic(heads, heads.T));
}

/// 128 queries a block, 64 keys at a time. Two strips a warp halve what it reads of the keys; at
/// 128 channels their sums would not fit the registers.
template <class T, int kHS>
using ForwardMma = Mma<T, kHS, kHS <= 64 ? 2 : 1, kHS <= 64 ? 4 : 8, 64>;

}  // namespace

void attention_forward(const Ctx& ctx, Tensor out, Tensor lse, Tensor qkv) {
  const AttentionShape shape = check_attention_forward(out, lse, qkv);
  check_aligned({out, qkv});
  with_engine<ForwardMma>(qkv.dtype, shape.HS, [&]<class E>(Type<E>) {
    using T = typename E::Element;
    launch(ctx, forward_kernel<E>, grid_of<E>(shape), E::kThreads, ForwardRoom<E>::kBytes,
           heads_of(shape), device_data<T>(out), device_data<float>(lse), device_data<T>(qkv));
  });
}

}  // namespace ladder::LADDER_CUDA
