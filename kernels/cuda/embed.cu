// Embeddings: forward adds rows of two tables, backward sums the gradients of those rows.
//
// The gradient of a token's row is a sum over all places of the batch where the token occurs.
// Atomic additions would come in another order each time, so places are first sorted by token. A
// token's places are cut into pieces of some 32. The places of a piece are added one after the
// other, then the pieces. So the places fix the order. Most tokens have one piece. A frequent token
// has one warp for each of its pieces.
//
// Device code cannot throw. A token outside the vocabulary gives a row of NaN. It adds nothing to
// dwte, nor does a token that is kElsewhere, nor padding.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"
#include "kernels/tree.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// out (B,T,C), with a row of -0 for a token that is kElsewhere; tokens (B,T); wte (V,C); wpe (P,C)
/// or null. A thread writes W channels of the rows of a RowBlock. For a token without a row, row 0
/// is loaded: no load waits for a branch.
template <class T, int W>
__global__ void forward(T* out, const int32_t* tokens, const T* wte, const T* wpe,
                        Positions positions, Extents s) {
  const RowBlock at = row_block<W>();
  if (at.column >= s.C) return;
  int64_t token[kBlockRows];
  Floats<W> word[kBlockRows], place[kBlockRows];
#pragma unroll
  for (int r = 0; r < kBlockRows; ++r)
    token[r] = at.row + r < s.B * s.T ? tokens[at.row + r] : kElsewhere;
  int64_t in_row = at.row % s.T;
#pragma unroll
  for (int r = 0; r < kBlockRows; ++r) {
    const bool known = token[r] >= 0 && token[r] < s.V;
    word[r] = load<W>(wte + (known ? token[r] * s.C : 0) + at.column);
    const bool of_document = positions.documents && at.row + r < s.B * s.T;
    const int64_t position = of_document ? positions[at.row + r] : in_row;
    place[r] = load_or_nothing<W>(wpe, position * s.C + at.column);
    in_row = in_row + 1 < s.T ? in_row + 1 : 0;
  }
#pragma unroll
  for (int r = 0; r < kBlockRows; ++r) {
    const bool known = token[r] >= 0 && token[r] < s.V;
    const float instead = token[r] == kElsewhere ? -0.0F : std::numeric_limits<float>::quiet_NaN();
    for (int j = 0; j < W; ++j) word[r].at[j] = known ? word[r].at[j] + place[r].at[j] : instead;
    if (at.row + r < s.B * s.T) store<W>(out + (at.row + r) * s.C + at.column, word[r]);
  }
}

/// A token and its place b T + t in the batch. Sorted as numbers, keys are in order of token, then
/// of place. No two keys are equal, so there is only one order.
using Key = uint64_t;
__device__ Key key_of(int64_t token, int64_t place) {
  return static_cast<Key>(token) << 32 | static_cast<Key>(place);
}
__device__ unsigned place_of(Key key) { return static_cast<unsigned>(key); }

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

/// The most keys that a block sorts, and how many runs one launch joins. Each step of a block's
/// sort takes its keys through shared memory. So a longer run keeps few SMs busy for long.
constexpr int64_t kRun = 512;
constexpr int kWays = 16;

/// keys (n) of tokens (n), sorted within each run of `length` keys. One block sorts a run in shared
/// memory, by a bitonic sort (Batcher, 1968). It always compares the same places, whatever the keys
/// are.
__global__ void __launch_bounds__(kMaxThreads)
    sort_runs(Key* keys, const int32_t* tokens, Positions positions, int64_t n, int64_t V,
              int length) {
  __shared__ Key run[kRun];
  const int64_t first = int64_t{blockIdx.x} * length;
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = thread; i < length; i += threads) {
    const int64_t place = first + i;
    const bool known =
        place < n && tokens[place] >= 0 && tokens[place] < V && !positions.is_padding(place);
    run[i] = key_of(known ? tokens[place] : V, place);
  }
  for (int size = 2; size <= length; size *= 2)  // of pieces; every second one descends
    for (int apart = size / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (int i = thread; i < length / 2; i += threads) {
        const int low = 2 * i - (i & (apart - 1)), high = low + apart;
        const Key x = run[low], y = run[high];
        const bool ascends = (low & size) == 0;
        run[low] = (x < y) == ascends ? x : y;
        run[high] = (x < y) == ascends ? y : x;
      }
    }
  __syncthreads();
  for (int i = thread; i < length && first + i < n; i += threads) keys[first + i] = run[i];
}

/// One step of merge sort: kWays neighboring runs of `size` keys become one. `size` is a power of
/// two. A key's new place follows from how many keys are smaller: those before it in its own run,
/// and those in each other run.
__global__ void merge_runs(Key* to, const Key* from, int64_t n, int64_t size) {
  const int64_t i = thread_index();
  if (i >= n) return;
  const Key key = from[i];
  const int64_t all = i / (kWays * size) * (kWays * size);
  int64_t smaller[kWays] = {};  // for each run
  for (int64_t half = size; half > 0; half /= 2)
#pragma unroll  // searches all runs at once: each step waits for its load
    for (int run = 0; run < kWays; ++run) {
      const int64_t last = all + run * size + smaller[run] + half - 1;
      if (smaller[run] + half <= size && last < n && from[last] < key) smaller[run] += half;
    }
  int64_t place = all;
#pragma unroll
  for (int run = 0; run < kWays; ++run) place += smaller[run];
  to[place] = key;
}

/// start (V + 1): where the places of token v begin, or those of the next token that occurs.
__global__ void find_starts(int32_t* start, const Key* keys, int64_t n, int64_t V) {
  const int64_t v = thread_index();
  if (v <= V) start[v] = static_cast<int32_t>(lower_bound(keys, 0, n, key_of(v, 0)));
}

/// The places of tokens, and how they are cut into pieces.
struct Places {
  const Key* keys;       ///< (n), sorted
  const int32_t* start;  ///< (V + 1): where a token's keys begin
  int64_t n, V, C;
  int64_t of_piece;  ///< a multiple of kWarp

  /// Piece i of a token, counted from the token's first place.
  __device__ Range piece(int64_t token, int64_t i) const {
    const int64_t begin = start[token] + i * of_piece;
    return {begin, std::min<int64_t>(begin + of_piece, start[token + 1])};
  }
};

/// sum[c..c+W) of dout's rows at keys [range.begin, range.end), in their order, by a warp; the
/// loads of kAtOnce rows are under way together. Where there is no column or no further row, the
/// last one is loaded once more: a branch would let each load wait for the one before.
template <int W, int kAtOnce, class T>
__device__ Floats<W> sum_places(const T* dout, const Places& places, Range range, int64_t c) {
  Floats<W> sum;
  for (int j = 0; j < W; ++j) sum.at[j] = -0.0F;
  dout += std::min(c, places.C - W);
  for (int64_t first = range.begin; first < range.end; first += kWarp) {
    const int count = static_cast<int>(std::min<int64_t>(range.end - first, kWarp));
    const unsigned own = lane_index() < count ? place_of(places.keys[first + lane_index()]) : 0;
    for (int i = 0; i < count; i += kAtOnce) {
      Floats<W> d[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r)
        d[r] = load<W>(dout + __shfl_sync(kAllLanes, own, std::min(i + r, count - 1)) * places.C);
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r)
        for (int j = 0; j < W; ++j)
          sum.at[j] += i + r < count ? d[r].at[j] : -0.0F;  // which changes no sum
    }
  }
  return sum;
}

/// partial (slots,C): the sums of all pieces except the first of each token. The slot of a piece is
/// the place of its first key among all keys, divided by the length of a piece. Between two later
/// pieces of different tokens lies the first piece of one of them. So no slot has two pieces.
template <class T, int W>
__global__ void sum_pieces(float* partial, const T* dout, Places places) {
  const int64_t slot = int64_t{blockIdx.x} * (kThreads / kWarp) + warp_index();
  const int64_t at = slot * places.of_piece;
  if (at >= places.n) return;
  const auto token = static_cast<int64_t>(places.keys[at] >> 32);
  if (token >= places.V) return;
  // Where a token begins inside of the slot, its later pieces begin behind the slot. So only the
  // token at its front can have one here.
  const int64_t before = at - places.start[token];
  const Range range = places.piece(token, (before + places.of_piece - 1) / places.of_piece);
  if (before <= 0 || range.begin >= range.end) return;
  const int64_t c = (int64_t{blockIdx.y} * kWarp + lane_index()) * W;
  const Floats<W> sum = sum_places<W, 4>(dout, places, range, c);
  if (c < places.C) store<W>(partial + slot * places.C + c, sum);
}

/// Neighboring tokens of a warp: it looks up once where their keys begin, before it waits for rows.
constexpr int kTokens = 8;

/// dwte (V,C): a token's first piece, then the others. A warp for 32 W channels of kTokens rows.
template <class T, int W>
__global__ void sum_tokens(float* dwte, const float* partial, const T* dout, Places places,
                           Into into) {
  const int64_t first = (int64_t{blockIdx.x} * (kThreads / kWarp) + warp_index()) * kTokens;
  const int64_t c = (int64_t{blockIdx.y} * kWarp + lane_index()) * W;
  const int start = places.start[std::min(first + lane_index(), places.V)];
  for (int i = 0; i < kTokens && first + i < places.V; ++i) {
    const int64_t begin = __shfl_sync(kAllLanes, start, i);
    const int64_t next = __shfl_sync(kAllLanes, start, i + 1);
    if (into == Into::Add && begin == next) continue;
    const Range range{begin, std::min(begin + places.of_piece, next)};
    Floats<W> sum = sum_places<W, 2>(dout, places, range, c);  // most tokens have one or two
    if (c >= places.C) continue;
    const int64_t pieces = (next - range.end + places.of_piece - 1) / places.of_piece;
    const float* piece = partial + range.end / places.of_piece * places.C + c;
#pragma unroll 4
    for (int64_t k = 0; k < pieces; ++k) {
      const Floats<W> x = load<W>(piece + k * places.C);
      for (int j = 0; j < W; ++j) sum.at[j] += x.at[j];
    }
    float* row = dwte + (first + i) * places.C + c;
    if (into == Into::Add) {
      const Floats<W> old = load<W>(row);
      for (int j = 0; j < W; ++j) sum.at[j] = old.at[j] + sum.at[j];
    }
    store<W>(row, sum);
  }
}

/// dwpe (P,C): sequences in ascending order. A thread sums W channels, and loads those of four
/// sequences at once, as sum_places does.
template <class T, int W>
__global__ void sum_positions(float* dwpe, const T* dout, Sequences sequences, Extents s,
                              Into into) {
  constexpr int kAtOnce = 4;
  const int64_t i = thread_index() * W;
  if (i >= s.P * s.C) return;
  Floats<W> sum;
  for (int j = 0; j < W; ++j) sum.at[j] = -0.0F;
  for (int64_t b = 0; b < sequences.count; b += kAtOnce) {
    Floats<W> d[kAtOnce];
    bool there[kAtOnce];
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      const Range rows = sequences[std::min(b + r, sequences.count - 1)];
      there[r] = b + r < sequences.count && i < rows.size() * s.C;
      d[r] = load<W>(dout + (there[r] ? rows.begin * s.C + i : 0));
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r)
      for (int j = 0; j < W; ++j) sum.at[j] += there[r] ? d[r].at[j] : -0.0F;
  }
  for (int j = 0; j < W; ++j) dwpe[i + j] = into == Into::Add ? dwpe[i + j] + sum.at[j] : sum.at[j];
}

/// The keys of all n tokens, sorted.
const Key* sort_by_token(const Ctx& ctx, Scratch& scratch, const int32_t* tokens,
                         const Positions& positions, int64_t n, int64_t V) {
  Key *keys = scratch.take<Key>(n), *other = scratch.take<Key>(n);
  const auto length =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(n, 2, kRun))));
  launch(ctx, sort_runs, {.x = ceil_div(n, length)},
         static_cast<int>(std::clamp<int64_t>(length / 4, 1, kMaxThreads)), 0, keys, tokens,
         positions, n, V, static_cast<int>(length));
  for (int64_t size = length; size < n; size *= kWays) {
    launch(ctx, merge_runs, grid_over<1>(n), kThreads, 0, other, keys, n, size);
    std::swap(keys, other);
  }
  return keys;
}

/// How many places a piece has: as many as a warp reads at once, or more if the sums of the pieces
/// would take more than 16 MiB.
int64_t places_of_piece(int64_t n, int64_t C) {
  constexpr int64_t kMost = 16 << 20;
  int64_t places = kWarp;
  while (ceil_div(n, places) * C * int64_t{sizeof(float)} > kMost && places < n) places *= 2;
  return places;
}

}  // namespace

void embed_forward(const Ctx& ctx, Tensor out, Tensor tokens, Tensor wte, Tensor wpe) {
  const Extents s = check_shapes(Op::embed_forward, out, tokens, wte, wpe);
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {out, wte, wpe}, [&]<int W>(Width<W>) {
      const int threads = row_threads<W>(s.C);
      launch(ctx, forward<T, W>, row_grid<W>(s.B * s.T, s.C), threads, 0, device_data<T>(out),
             device_data<int32_t>(tokens), device_data<T>(wte), device_data<T>(wpe),
             positions_of(ctx, s.B, s.T), s);
    });
  });
}

void embed_backward(const Ctx& ctx, Tensor dwte, Tensor dwpe, Tensor dout, Tensor tokens,
                    Into into) {
  const Extents s = check_shapes(Op::embed_backward, dwte, dwpe, dout, tokens);
  const int64_t n = s.B * s.T;
  Scratch scratch(ctx);
  const Key* keys = sort_by_token(ctx, scratch, device_data<int32_t>(tokens),
                                  positions_of(ctx, s.B, s.T), n, s.V);
  auto* start = scratch.take<int32_t>(s.V + 1);
  launch(ctx, find_starts, grid_over<1>(s.V + 1), kThreads, 0, start, keys, n, s.V);
  const Places places{.keys = keys,
                      .start = start,
                      .n = n,
                      .V = s.V,
                      .C = s.C,
                      .of_piece = places_of_piece(n, s.C)};
  auto* partial = scratch.take<float>(ceil_div(n, places.of_piece) * s.C);
  dispatch(dout.dtype, [&]<class T>(Type<T>) {
    // Four channels of a lane are 16 bytes of FP32: what a warp stores at once has no gaps.
    dispatch_width<float>(s.C, {dout, dwte, dwpe}, [&]<int W>(Width<W>) {
      const auto grid = [&](int64_t rows) -> Grid {
        return {.x = ceil_div(rows, kThreads / kWarp), .y = ceil_div(s.C, kWarp * W)};
      };
      launch(ctx, sum_pieces<T, W>, grid(ceil_div(n, places.of_piece)), kThreads, 0, partial,
             device_data<T>(dout), places);
      launch(ctx, sum_tokens<T, W>, grid(ceil_div(s.V, kTokens)), kThreads, 0,
             device_data<float>(dwte), partial, device_data<T>(dout), places, into);
      if (!dwpe) return;
      launch(ctx, sum_positions<T, W>, grid_over<W>(dwpe.size()), kThreads, 0,
             device_data<float>(dwpe), device_data<T>(dout), sequences_of(ctx, s.B, s.T), s, into);
    });
  });
}

}  // namespace ladder::LADDER_CUDA
