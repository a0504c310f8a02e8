// The rows of experts: sorting them, filling them from tokens, multiplying them, and combining them
// into tokens again.
//
// A pair is one of a token's k choices of an expert. Rows are sorted by counting: they are in order
// of expert, then of token. One kernel counts the rows of each expert in each sequence, a second
// adds up where they begin, a third writes them.
//
// Products are those of matmul.cu, one after the other. The host must know how many rows each has,
// so it waits for the offsets, once.
#include <algorithm>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/experts.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {

/// For SparseTreeSum.
template <int W>
constexpr Floats<W> operator+(const Floats<W>& a, const Floats<W>& b) {
  Floats<W> sum{};
  for (int j = 0; j < W; ++j) sum.at[j] = a.at[j] + b.at[j];
  return sum;
}

namespace {

// ---- which rows there are ----------------------------------------------------------------

/// ExpertRows in the form that device code uses: (E + 1), (B,T,k), (M).
struct DeviceRows {
  int32_t *offsets, *row, *from;
};
DeviceRows device_rows(const ExpertRows& rows) {
  return {device_data<int32_t>(rows.offsets), device_data<int32_t>(rows.row),
          device_data<int32_t>(rows.from)};
}

/// The sum of x over the threads of the block before this one, and over all threads of the block.
struct Counted {
  int before, all;
};
__device__ Counted count_before(int x) {
  __shared__ int by_warp[kWarp];
  int upto = x;  // over the lanes up to this one
  for (int step = 1; step < kWarp; step *= 2) {
    const int left = __shfl_up_sync(kAllLanes, upto, step);
    if (lane_index() >= step) upto += left;
  }
  if (lane_index() == kWarp - 1) by_warp[warp_index()] = upto;
  __syncthreads();
  Counted counted{upto - x, 0};
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) {
    if (warp < warp_index()) counted.before += by_warp[warp];
    counted.all += by_warp[warp];
  }
  __syncthreads();  // the next call may write `by_warp` again
  return counted;
}

/// Pairs of sequence blockIdx.x. `pairs` are those that this thread looks at. `taken` counts the
/// pairs that took expert blockIdx.y: before these, and in all.
struct Choices {
  Range pairs;
  Counted taken;
};
__device__ Choices choices_of(const int32_t* expert, int64_t pairs) {
  const int64_t each = (pairs + kThreads - 1) / kThreads, first = blockIdx.x * pairs;
  const int64_t begin = std::min(threadIdx.x * each, pairs), end = std::min(begin + each, pairs);
  int own = 0;
  for (int64_t i = begin; i < end; ++i) own += expert[first + i] == static_cast<int>(blockIdx.y);
  return {{first + begin, first + end}, count_before(own)};
}

/// begin (E,B) = how many rows expert e has for sequence b, at most `capacity` unless that is 0.
/// expert (B,pairs). One block per expert and sequence.
__global__ void count_rows(int32_t* begin, const int32_t* expert, int64_t pairs, int64_t capacity) {
  const int64_t taken = choices_of(expert, pairs).taken.all;
  if (threadIdx.x == 0)
    begin[blockIdx.y * gridDim.x + blockIdx.x] =
        static_cast<int32_t>(capacity == 0 ? taken : std::min(taken, capacity));
}

/// begin (E,B): turns each count into the sum of the counts before it. offsets (E + 1). One block.
__global__ void __launch_bounds__(kMaxThreads)
    add_counts(int32_t* offsets, int32_t* begin, int64_t E, int64_t B) {
  int32_t before = 0;
  for (int64_t first = 0; first < E * B; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    const Counted counted = count_before(i < E * B ? begin[i] : 0);
    if (i < E * B) begin[i] = before + counted.before;
    if (i < E * B && i % B == 0) offsets[i / B] = before + counted.before;
    before += counted.all;
  }
  for (int64_t e = threadIdx.x; B == 0 && e < E; e += blockDim.x) offsets[e] = 0;
  if (threadIdx.x == 0) offsets[E] = before;
}

/// rows.row and rows.from of the pairs that took expert blockIdx.y in sequence blockIdx.x. begin
/// (E,B): its first row there; expert (B,pairs). Rows from `capacity` on are dropped.
__global__ void write_rows(DeviceRows rows, const int32_t* begin, const int32_t* expert,
                           int64_t pairs, int64_t capacity) {
  const Choices choices = choices_of(expert, pairs);
  const int32_t first = begin[blockIdx.y * gridDim.x + blockIdx.x];
  int place = choices.taken.before;
  for (int64_t i = choices.pairs.begin; i < choices.pairs.end; ++i) {
    if (expert[i] != static_cast<int>(blockIdx.y)) continue;
    const bool has_room = capacity == 0 || place < capacity;
    rows.row[i] = has_room ? first + place : kNoRow;
    if (has_room) rows.from[first + place] = static_cast<int32_t>(i);
    ++place;
  }
}

// ---- rows and tokens ---------------------------------------------------------------------

/// out (M,C); inp (B,T,C). A thread copies W channels of the rows of a RowBlock.
template <int W, class T>
__global__ void gather(T* out, const T* inp, DeviceRows rows, Extents s) {
  const RowBlock at = row_block<W>();
  const int64_t M = rows.offsets[s.E];
  if (at.column >= s.C || at.row >= M) return;
  Floats<W> x[kBlockRows];
#pragma unroll
  for (int r = 0; r < kBlockRows; ++r) {
    const int32_t pair = rows.from[std::min(at.row + r, M - 1)];
    x[r] = load<W>(inp + pair / static_cast<int32_t>(s.k) * s.C + at.column);
  }
#pragma unroll
  for (int r = 0; r < kBlockRows; ++r)
    if (at.row + r < M) store<W>(out + (at.row + r) * s.C + at.column, x[r]);
}

/// SparseTreeSum over K leaves in registers. Registers need an index that is known at compile time.
/// So it looks for the neighbors that share the smallest subtree. The second joins the first, and
/// all leaves after it move up, until one is left.
template <int K, int W>
__device__ Floats<W> sparse_tree_sum(Floats<W> (&x)[K], const int (&index)[K]) {
  int zeros[K];  // leading zeros: the more, the smaller the subtree of i and i + 1
#pragma unroll
  for (int i = 0; i + 1 < K; ++i) zeros[i] = __clz(index[i] ^ index[i + 1]);
#pragma unroll
  for (int joins = K - 1; joins > 0; --joins) {
    int at = 0, most = zeros[0];
#pragma unroll
    for (int i = 1; i < joins; ++i) {
      at = zeros[i] > most ? i : at;
      most = zeros[i] > most ? zeros[i] : most;
    }
#pragma unroll
    for (int i = 0; i < joins; ++i) {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const float sum = x[i].at[j] + x[i + 1].at[j];
        x[i].at[j] = i < at ? x[i].at[j] : i == at ? sum : x[i + 1].at[j];
      }
      if (i >= at && i + 1 < joins) zeros[i] = zeros[i + 1];
    }
  }
  return x[0];
}

/// What a token's output is a sum of: y (M,C); expert, weight (B,T,k); weight may be null.
template <class T>
struct Joined {
  const T* y;
  DeviceRows rows;
  const int32_t* expert;
  const float* weight;
  int64_t C, k;

  /// Channels [c, c + W) of a row, times the weight of pair i.
  template <int W>
  __device__ Floats<W> row_of(int64_t i, int64_t row, int64_t c) const {
    Floats<W> x = load<W>(y + row * C + c);
    const float factor = weight ? weight[i] : 1;
    for (int j = 0; j < W; ++j) x.at[j] *= factor;
    return x;
  }
};

template <int W>
__device__ Floats<W> nothing() {
  return load_or_nothing<W>(static_cast<const float*>(nullptr), 0);
}

/// The sum over the rows of pairs [first, first + k), where k is at most K. A missing row counts as
/// -0, and joins its neighbor first. Another row is loaded in its place, so that no load waits for
/// a branch.
template <int K, int W, class T>
__device__ Floats<W> join_rows(const Joined<T>& from, int64_t first, int64_t c) {
  int32_t row[K], some = kNoRow;
#pragma unroll
  for (int i = 0; i < K; ++i) {
    row[i] = i < from.k ? from.rows.row[first + i] : kNoRow;
    some = std::max(some, row[i]);
  }
  if (some == kNoRow) return nothing<W>();
  Floats<W> x[K];
  int index[K];
#pragma unroll
  for (int i = 0; i < K; ++i) {
    const bool there = row[i] != kNoRow;
    const int64_t pair = first + (i < from.k ? i : 0);
    index[i] = there ? from.expert[pair] : i > 0 ? index[i - 1] : -1;
    x[i] = from.template row_of<W>(pair, there ? row[i] : some, c);
    for (int j = 0; j < W; ++j) x[i].at[j] = there ? x[i].at[j] : -0.0F;
  }
  return sparse_tree_sum<K>(x, index);
}

/// out (B,T,C). k is at most K; if K is 0, k may be any number. A thread sums W channels of the
/// tokens of a RowBlock.
template <int K, int W, class To, class From>
__global__ void unpermute(To* out, Joined<From> from, int64_t tokens) {
  const RowBlock at = row_block<W>();
  if (at.column >= from.C) return;
  for (int64_t token = at.row; token < std::min(at.row + kBlockRows, tokens); ++token) {
    To* to = out + token * from.C + at.column;
    const int64_t first = token * from.k;
    if constexpr (K > 0) {
      store<W>(to, join_rows<K, W>(from, first, at.column));
    } else {
      SparseTreeSum<Floats<W>> tree;
      for (int64_t i = first; i < first + from.k; ++i)
        if (const int32_t row = from.rows.row[i]; row != kNoRow)
          tree.push(from.expert[i], from.template row_of<W>(i, row, at.column));
      store<W>(to, tree.take(nothing<W>()));
    }
  }
}

/// dy = weight dout; dweight = dout . y. dy, y (M,C); dweight, weight (B,T,k); dout (B,T,C). One
/// warp per pair.
template <int W, class T>
__global__ void unpermute_back(T* dy, float* dweight, const T* dout, const T* y, DeviceRows rows,
                               const float* weight, Extents s) {
  const int64_t pair = thread_index() / kWarp;
  if (pair >= s.B * s.T * s.k) return;
  const int64_t row = rows.row[pair], token = pair / s.k;
  float sum = 0;
  for (int64_t c = lane_index() * W; row != kNoRow && c < s.C; c += kWarp * W) {
    Floats<W> d = load<W>(dout + token * s.C + c);
    const Floats<W> own = load<W>(y + row * s.C + c);
    for (int j = 0; j < W; ++j) {
      sum += d.at[j] * own.at[j];
      d.at[j] *= weight[pair];
    }
    store<W>(dy + row * s.C + c, d);
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) dweight[pair] = sum;
}

// ---- products ----------------------------------------------------------------------------

/// Expert e's matrix of x (E,N,K).
Tensor matrix_of(const Tensor& x, int64_t e) { return x.slice(e, 1).view({x.dim(1), x.dim(2)}); }

/// Calls f(e, part) for all experts. part(x) is the rows of e in x. The first call after
/// expert_rows waits for the offsets.
template <class F>
void for_experts(const Ctx& ctx, const ExpertRows& rows, const Extents& s, const F& f) {
  if (std::exchange(device_of(ctx).host_lacks_offsets, false)) ctx.synchronize();
  check_offsets(rows, s.M);
  for (int64_t e = 0; e < s.E; ++e) {
    const Range range = rows_of(rows, e);
    f(e, [=](const Tensor& x) { return x.slice(range.begin, range.size()); });
  }
}

}  // namespace

void expert_rows(const Ctx& ctx, const ExpertRows& rows, Tensor expert, int64_t capacity) {
  const Extents s = check_shapes(Op::expert_rows, rows, expert, capacity);
  device_of(ctx).host_lacks_offsets = true;
  const DeviceRows to = device_rows(rows);
  const auto* chosen = device_data<int32_t>(expert);
  const int64_t pairs = s.T * s.k;
  Scratch scratch(ctx);
  auto* begin = scratch.take<int32_t>(s.E * s.B);
  const Grid grid{.x = s.B, .y = s.E};
  launch(ctx, count_rows, grid, kThreads, 0, begin, chosen, pairs, capacity);
  launch(ctx, add_counts, {}, kMaxThreads, 0, to.offsets, begin, s.E, s.B);
  static_assert(kNoRow == -1);  // choices of experts that are elsewhere keep it
  device_of(ctx).fill(rows.row.ptr, 0xFF, rows.row.bytes());
  launch(ctx, write_rows, grid, kThreads, 0, to, begin, chosen, pairs, capacity);
}

void gather_rows(const Ctx& ctx, Tensor out, Tensor inp, const ExpertRows& rows) {
  const Extents s = check_shapes(Op::gather_rows, out, inp, rows);
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {out, inp}, [&]<int W>(Width<W>) {
      launch(ctx, gather<W, T>, row_grid<W>(s.M, s.C), row_threads<W>(s.C), 0, device_data<T>(out),
             device_data<T>(inp), device_rows(rows), s);
    });
  });
}

void grouped_matmul_forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w,
                            const ExpertRows& rows, int leaves) {
  const Extents s = check_shapes(Op::grouped_matmul_forward, out, inp, w, rows, leaves);
  for_experts(ctx, rows, s, [&](int64_t e, const auto& part) {
    matmul_forward(ctx, part(out), part(inp), matrix_of(w, e), {}, leaves);
  });
}

void grouped_matmul_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor w,
                                   const ExpertRows& rows, int leaves) {
  const Extents s = check_shapes(Op::grouped_matmul_backward_input, dinp, dout, w, rows, leaves);
  for_experts(ctx, rows, s, [&](int64_t e, const auto& part) {
    matmul_backward_input(ctx, part(dinp), part(dout), matrix_of(w, e), leaves);
  });
}

void grouped_matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp,
                                    const ExpertRows& rows, Into into) {
  const Extents s = check_shapes(Op::grouped_matmul_backward_weight, dw, dout, inp, rows);
  const auto sequence = [](const Tensor& x) { return x.view({1, x.dim(0), x.dim(1)}); };
  for_experts(ctx, rows, s, [&](int64_t e, const auto& part) {
    matmul_backward_weight(ctx, matrix_of(dw, e), sequence(part(dout)), sequence(part(inp)), into);
  });
}

void unpermute_forward(const Ctx& ctx, Tensor out, Tensor y, const ExpertRows& rows, Tensor expert,
                       Tensor weight) {
  const Extents s = check_shapes(Op::unpermute_forward, out, y, rows, expert, weight);
  dispatch(y.dtype, [&]<class From>(Type<From>) {
    const Joined<From> from{.y = device_data<From>(y),
                            .rows = device_rows(rows),
                            .expert = device_data<int32_t>(expert),
                            .weight = device_data<float>(weight),
                            .C = s.C,
                            .k = s.k};
    const auto start = [&]<class To>(Type<To>) {
      dispatch_width<From>(s.C, {out, y}, [&]<int W>(Width<W>) {
        const auto kernel = s.k <= 2   ? unpermute<2, W, To, From>
                            : s.k <= 4 ? unpermute<4, W, To, From>
                            : s.k <= 8 ? unpermute<8, W, To, From>
                                       : unpermute<0, W, To, From>;
        launch(ctx, kernel, row_grid<W>(s.B * s.T, s.C), row_threads<W>(s.C), 0,
               device_data<To>(out), from, s.B * s.T);
      });
    };
    out.dtype == y.dtype ? start(Type<From>{}) : start(Type<float>{});
  });
}

void unpermute_backward(const Ctx& ctx, Tensor dy, Tensor dweight, Tensor dout, Tensor y,
                        const ExpertRows& rows, Tensor weight) {
  const Extents s = check_shapes(Op::unpermute_backward, dy, dweight, dout, y, rows, weight);
  dispatch(y.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {dy, dout, y}, [&]<int W>(Width<W>) {
      launch(ctx, unpermute_back<W, T>, {.x = ceil_div(s.B * s.T * s.k, kThreads / kWarp)},
             kThreads, 0, device_data<T>(dy), device_data<float>(dweight), device_data<T>(dout),
             device_data<T>(y), device_rows(rows), device_data<float>(weight), s);
    });
  });
}

}  // namespace ladder::LADDER_CUDA
