// Embeddings: rows of two tables added, and the gradients of those rows.
//
// The gradient of a token's row sums what the token met anywhere in the batch. Atomic additions
// would come in a different order each time; so places are sorted by token first, and the row has
// one block. Each of its warps adds every eighth place, then the warps' sums are added: an order
// that the places fix.
//
// Device code cannot throw: a token outside the vocabulary becomes a row of NaN, and has no
// gradient; nor has one that is kElsewhere.
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cuda/columns.h"
#include "kernels/cuda/table.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {
namespace {

/// out (B,T,C), a row of 0 for a token elsewhere; tokens (B,T); wte (V,C); wpe (P,C) or null. A
/// thread writes W channels.
template <class T, int W>
__global__ void forward(T* out, const int32_t* tokens, const T* wte, const T* wpe, EmbedShape s) {
  const int64_t i = thread_index() * W;
  if (i >= s.B * s.T * s.C) return;
  const int64_t row = i / s.C, c = i % s.C, token = tokens[row];
  if (token == kElsewhere) return store<W>(out + i, {});
  const bool known = token >= 0 && token < s.V;
  Floats<W> word = known ? load<W>(wte + token * s.C + c) : Floats<W>{};
  const Floats<W> place = load_or_nothing<W>(wpe, row % s.T * s.C + c);
  for (int j = 0; j < W; ++j)
    word.at[j] = known ? word.at[j] + place.at[j] : std::numeric_limits<float>::quiet_NaN();
  store<W>(out + i, word);
}

/// A token and its place in the batch: b T + t. As numbers they sort by token, then by place, and
/// no two are equal: there is only one order.
using Key = uint64_t;
__device__ Key key_of(int64_t token, int64_t place) {
  return static_cast<Key>(token) << 32 | static_cast<Key>(place);
}
__device__ int64_t place_of(Key key) { return static_cast<uint32_t>(key); }

/// The first of keys[begin, end), which ascend, that is not below `key`; `end` if there is none.
__device__ int64_t lower_bound(const Key* keys, int64_t begin, int64_t end, Key key) {
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (keys[middle] < key)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

__global__ void make_keys(Key* keys, const int32_t* tokens, int64_t n, int64_t V) {
  const int64_t i = thread_index();
  if (i >= n) return;
  const bool known = tokens[i] >= 0 && tokens[i] < V;
  keys[i] = key_of(known ? tokens[i] : V, i);
}

/// One step of merge sort: neighboring runs of `size` keys become one of 2 size. A key moves
/// behind those of its own run that are smaller, and behind those of the other run.
__global__ void merge_runs(Key* to, const Key* from, int64_t n, int64_t size) {
  const int64_t i = thread_index();
  if (i >= n) return;
  const int64_t own = i / size * size, pair = i / (2 * size) * (2 * size);
  const int64_t other = std::min(own == pair ? pair + size : pair, n);
  const int64_t smaller = lower_bound(from, other, std::min(other + size, n), from[i]) - other;
  to[pair + (i - own) + smaller] = from[i];
}

/// start[v]: the first place of token v or of a later one. start (V + 1)
__global__ void find_starts(int32_t* start, const Key* keys, int64_t n, int64_t V) {
  const int64_t v = thread_index();
  if (v <= V) start[v] = static_cast<int32_t>(lower_bound(keys, 0, n, key_of(v, 0)));
}

/// The rows of dout at the places of sorted keys.
template <class T, int W>
struct Places {
  const T* dout;  ///< (B,T,C)
  const Key* keys;
  int64_t C;

  __device__ void add(Floats<W> (&sum)[1], int64_t k, int64_t c) const {
    const Floats<W> d = load<W>(dout + place_of(keys[k]) * C + c);
    for (int i = 0; i < W; ++i) sum[0].at[i] += d.at[i];
  }
};

/// dwte (V,C), a block for each row.
template <class T, int W>
__global__ void sum_tokens(float* dwte, Places<T, W> places, const int32_t* start, Into into) {
  const Range found{.begin = start[blockIdx.x], .end = start[blockIdx.x + 1]};
  float* row = dwte + blockIdx.x * places.C;
  if (found.begin == found.end) {  // as most rows of a large vocabulary
    for (int64_t c = threadIdx.x; into == Into::Write && c < places.C; c += kThreads) row[c] = 0;
    return;
  }
  for (int64_t first = 0; first < places.C; first += kWarp * W)
    sum_rows<1, W>(places, found, first, places.C, [=](int, int64_t c, float sum) {
      row[c] = into == Into::Add ? row[c] + sum : sum;
    });
}

/// dwpe (P,C): sequences in ascending order. A thread sums W channels.
template <class T, int W>
__global__ void sum_positions(float* dwpe, const T* dout, EmbedShape s, Into into) {
  const int64_t i = thread_index() * W;
  if (i >= s.P * s.C) return;
  Floats<W> sum = {};
  for (int64_t b = 0; i < s.T * s.C && b < s.B; ++b) {
    const Floats<W> d = load<W>(dout + b * s.T * s.C + i);
    for (int j = 0; j < W; ++j) sum.at[j] += d.at[j];
  }
  for (int j = 0; j < W; ++j) dwpe[i + j] = into == Into::Add ? dwpe[i + j] + sum.at[j] : sum.at[j];
}

/// The keys of all n tokens, sorted.
const Key* sort_by_token(const Ctx& ctx, Scratch& scratch, const int32_t* tokens, int64_t n,
                         int64_t V) {
  Key *keys = scratch.take<Key>(n), *other = scratch.take<Key>(n);
  launch(ctx, make_keys, grid_over<1>(n), kThreads, 0, keys, tokens, n, V);
  for (int64_t size = 1; size < n; size *= 2) {
    launch(ctx, merge_runs, grid_over<1>(n), kThreads, 0, other, keys, n, size);
    std::swap(keys, other);
  }
  return keys;
}

}  // namespace

void embed_forward(const Ctx& ctx, Tensor out, Tensor tokens, Tensor wte, Tensor wpe) {
  const EmbedShape s = check_embed_forward(out, tokens, wte, wpe);
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {out, wte, wpe}, [&]<int W>(Width<W>) {
      launch(ctx, forward<T, W>, grid_over<W>(out.size()), kThreads, 0, device_data<T>(out),
             device_data<int32_t>(tokens), device_data<T>(wte), device_data<T>(wpe), s);
    });
  });
}

void embed_backward(const Ctx& ctx, Tensor dwte, Tensor dwpe, Tensor dout, Tensor tokens,
                    Into into) {
  const EmbedShape s = check_embed_backward(dwte, dwpe, dout, tokens);
  const int64_t n = s.B * s.T;
  Scratch scratch(ctx);
  const Key* keys = sort_by_token(ctx, scratch, device_data<int32_t>(tokens), n, s.V);
  auto* start = scratch.take<int32_t>(s.V + 1);
  launch(ctx, find_starts, grid_over<1>(s.V + 1), kThreads, 0, start, keys, n, s.V);
  dispatch(dout.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {dout}, [&]<int W>(Width<W>) {
      const Places<T, W> places{.dout = device_data<T>(dout), .keys = keys, .C = s.C};
      launch(ctx, sum_tokens<T, W>, {.x = s.V}, kThreads, 0, device_data<float>(dwte), places,
             start, into);
      if (!dwpe) return;
      launch(ctx, sum_positions<T, W>, grid_over<W>(dwpe.size()), kThreads, 0,
             device_data<float>(dwpe), places.dout, s, into);
    });
  });
}

}  // namespace ladder::LADDER_CUDA
