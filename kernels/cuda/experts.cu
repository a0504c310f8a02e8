// The rows of experts: sorted, filled from the tokens, multiplied, and joined to tokens again.
//
// An expert's rows are sorted by counting, in the order of the tokens: a block for each expert
// walks over all choices twice, first to count its rows, then, when the counts of those before it
// are known, to write them. Products are those of matmul.cu, one after the other; how many rows
// each has, the host must know, so it waits for the offsets.
#include <algorithm>

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

/// ExpertRows as device code sees it.
struct Rows {
  int32_t *offsets, *row, *from;
};
Rows device_rows(const ExpertRows& rows) {
  return {device_data<int32_t>(rows.offsets), device_data<int32_t>(rows.row),
          device_data<int32_t>(rows.from)};
}

/// How many threads before this one said yes, and how many of the block in all.
struct Counted {
  int before, all;
};
__device__ Counted count_yes(bool yes) {
  __shared__ int by_warp[kThreads / kWarp];
  const unsigned lanes = __ballot_sync(kAllLanes, yes);
  if (lane_index() == 0) by_warp[warp_index()] = __popc(lanes);
  __syncthreads();
  Counted counted{__popc(lanes & ((1u << lane_index()) - 1)), 0};
  for (int warp = 0; warp < kThreads / kWarp; ++warp) {
    if (warp < warp_index()) counted.before += by_warp[warp];
    counted.all += by_warp[warp];
  }
  __syncthreads();  // so that the next call may write `by_warp`
  return counted;
}

/// put(pair, i) for the pairs that expert e = blockIdx.x takes, i counting them. Returns how many.
/// expert (B,pairs); a block for each expert
template <class Put>
__device__ int64_t for_taken(const int32_t* expert, int64_t B, int64_t pairs, int64_t capacity,
                             Put put) {
  int64_t taken = 0;
  for (int64_t b = 0; b < B; ++b) {
    int64_t met = 0;  // of this sequence
    for (int64_t first = 0; first < pairs; first += kThreads) {
      const int64_t i = first + threadIdx.x;
      const bool mine = i < pairs && expert[b * pairs + i] == static_cast<int32_t>(blockIdx.x);
      const Counted counted = count_yes(mine);
      const int64_t place = met + counted.before;
      if (mine) put(b * pairs + i, capacity == 0 || place < capacity ? taken + place : -1);
      met += counted.all;
    }
    taken += capacity == 0 ? met : std::min(met, capacity);
  }
  return taken;
}

/// offsets[e + 1] = the rows of expert e
__global__ void count_rows(int32_t* offsets, const int32_t* expert, int64_t B, int64_t pairs,
                           int64_t capacity) {
  const int64_t taken = for_taken(expert, B, pairs, capacity, [](int64_t, int64_t) {});
  if (threadIdx.x == 0) offsets[blockIdx.x + 1] = static_cast<int32_t>(taken);
}

/// Counts become offsets; one thread, as experts are few.
__global__ void add_counts(int32_t* offsets, int64_t E) {
  offsets[0] = 0;
  for (int64_t e = 0; e < E; ++e) offsets[e + 1] += offsets[e];
}

__global__ void write_rows(Rows rows, const int32_t* expert, int64_t B, int64_t pairs,
                           int64_t capacity) {
  const int32_t first = rows.offsets[blockIdx.x];
  for_taken(expert, B, pairs, capacity, [=](int64_t pair, int64_t i) {
    const int32_t row = i < 0 ? kNoRow : first + static_cast<int32_t>(i);
    rows.row[pair] = row;
    if (i >= 0) rows.from[row] = static_cast<int32_t>(pair);
  });
}

/// What no expert here is asked about.
__global__ void write_no_rows(int32_t* row, const int32_t* expert, int64_t n) {
  const int64_t i = thread_index();
  if (i < n && expert[i] == kElsewhere) row[i] = kNoRow;
}

// ---- rows and tokens ---------------------------------------------------------------------

/// out (M,C); inp (B,T,C); a thread copies W channels of a row
template <int W, class T>
__global__ void gather(T* out, const T* inp, Rows rows, ExpertShape s) {
  const int64_t i = thread_index() * W;
  if (i >= rows.offsets[s.E] * s.C) return;
  const int64_t token = rows.from[i / s.C] / s.k;
  store<W>(out + i, load<W>(inp + token * s.C + i % s.C));
}

/// out (B,T,C); y (M,C); expert, weight (B,T,k); a thread joins W channels of a token
template <int W, class To, class From>
__global__ void combine(To* out, const From* y, Rows rows, const int32_t* expert,
                        const float* weight, ExpertShape s) {
  const int64_t i = thread_index() * W;
  if (i >= s.B * s.T * s.C) return;
  const int64_t first = i / s.C * s.k;
  SparseTreeSum<Floats<W>> tree;
  for (int64_t pair = first; pair < first + s.k; ++pair) {
    const int64_t row = rows.row[pair];
    if (row == kNoRow) continue;
    Floats<W> x = load<W>(y + row * s.C + i % s.C);
    for (int j = 0; weight && j < W; ++j) x.at[j] *= weight[pair];
    tree.push(expert[pair], x);
  }
  store<W>(out + i, tree.take(load_or_nothing<W>(static_cast<const float*>(nullptr), 0)));
}

/// dy, y (M,C); dweight, weight (B,T,k); dout (B,T,C); a warp for each pair
template <class T>
__global__ void combine_back(T* dy, float* dweight, const T* dout, const T* y, Rows rows,
                             const float* weight, ExpertShape s) {
  const int64_t pair = thread_index() / kWarp;
  if (pair >= s.B * s.T * s.k) return;
  const int64_t row = rows.row[pair];
  float sum = 0;
  for (int64_t c = lane_index(); row != kNoRow && c < s.C; c += kWarp) {
    const float d = to_float(dout[pair / s.k * s.C + c]);
    dy[row * s.C + c] = from_float<T>(weight[pair] * d);
    sum += d * to_float(y[row * s.C + c]);
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) dweight[pair] = sum;
}

// ---- products ----------------------------------------------------------------------------

/// x (E,N,K) of expert e.
Tensor matrix_of(const Tensor& x, int64_t e) { return x.slice(e, 1).view({x.dim(1), x.dim(2)}); }

/// f(e, part) for all experts, where part(x) is a tensor's rows of e. Waits for the offsets.
template <class F>
void for_experts(const Ctx& ctx, const ExpertRows& rows, const GroupedShape& s, const F& f) {
  ctx.synchronize();
  check_offsets(rows, s.M);
  for (int64_t e = 0; e < s.E; ++e) {
    const Range range = rows_of(rows, e);
    f(e, [=](const Tensor& x) { return x.slice(range.begin, range.size()); });
  }
}

}  // namespace

void expert_rows(const Ctx& ctx, const ExpertRows& rows, Tensor expert, int64_t capacity) {
  const ExpertShape s = check_expert_rows(rows, expert, capacity);
  const Rows to = device_rows(rows);
  const auto* chosen = device_data<int32_t>(expert);
  const int64_t pairs = s.T * s.k;
  launch(ctx, count_rows, {.x = s.E}, kThreads, 0, to.offsets, chosen, s.B, pairs, capacity);
  launch(ctx, add_counts, {}, 1, 0, to.offsets, s.E);
  launch(ctx, write_rows, {.x = s.E}, kThreads, 0, to, chosen, s.B, pairs, capacity);
  launch(ctx, write_no_rows, grid_over<1>(s.B * pairs), kThreads, 0, to.row, chosen, s.B * pairs);
}

void gather_rows(const Ctx& ctx, Tensor out, Tensor inp, const ExpertRows& rows) {
  const ExpertShape s = check_gather_rows(out, inp, rows);
  dispatch(out.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.C, {out, inp}, [&]<int W>(Width<W>) {
      launch(ctx, gather<W, T>, grid_over<W>(out.size()), kThreads, 0, device_data<T>(out),
             device_data<T>(inp), device_rows(rows), s);
    });
  });
}

void grouped_matmul_forward(const Ctx& ctx, Tensor out, Tensor inp, Tensor w,
                            const ExpertRows& rows, int leaves) {
  const GroupedShape s = check_grouped_matmul_forward(out, inp, w, rows, leaves);
  for_experts(ctx, rows, s, [&](int64_t e, const auto& part) {
    matmul_forward(ctx, part(out), part(inp), matrix_of(w, e), {}, leaves);
  });
}

void grouped_matmul_backward_input(const Ctx& ctx, Tensor dinp, Tensor dout, Tensor w,
                                   const ExpertRows& rows, int leaves) {
  const GroupedShape s = check_grouped_matmul_backward_input(dinp, dout, w, rows, leaves);
  for_experts(ctx, rows, s, [&](int64_t e, const auto& part) {
    matmul_backward_input(ctx, part(dinp), part(dout), matrix_of(w, e), leaves);
  });
}

void grouped_matmul_backward_weight(const Ctx& ctx, Tensor dw, Tensor dout, Tensor inp,
                                    const ExpertRows& rows, Into into) {
  const GroupedShape s = check_grouped_matmul_backward_weight(dw, dout, inp, rows);
  const auto sequence = [](const Tensor& x) { return x.view({1, x.dim(0), x.dim(1)}); };
  for_experts(ctx, rows, s, [&](int64_t e, const auto& part) {
    matmul_backward_weight(ctx, matrix_of(dw, e), sequence(part(dout)), sequence(part(inp)), into);
  });
}

void combine_forward(const Ctx& ctx, Tensor out, Tensor y, const ExpertRows& rows, Tensor expert,
                     Tensor weight) {
  const ExpertShape s = check_combine_forward(out, y, rows, expert, weight);
  dispatch(y.dtype, [&]<class From>(Type<From>) {
    const auto start = [&]<class To>(Type<To>) {
      dispatch_width<float>(s.C, {out, y}, [&]<int W>(Width<W>) {
        launch(ctx, combine<W, To, From>, grid_over<W>(out.size()), kThreads, 0,
               device_data<To>(out), device_data<From>(y), device_rows(rows),
               device_data<int32_t>(expert), device_data<float>(weight), s);
      });
    };
    out.dtype == y.dtype ? start(Type<From>{}) : start(Type<float>{});
  });
}

void combine_backward(const Ctx& ctx, Tensor dy, Tensor dweight, Tensor dout, Tensor y,
                      const ExpertRows& rows, Tensor weight) {
  const ExpertShape s = check_combine_backward(dy, dweight, dout, y, rows, weight);
  dispatch(y.dtype, [&]<class T>(Type<T>) {
    launch(ctx, combine_back<T>, {.x = ceil_div(s.B * s.T * s.k, kThreads / kWarp)}, kThreads, 0,
           device_data<T>(dy), device_data<float>(dweight), device_data<T>(dout), device_data<T>(y),
           device_rows(rows), device_data<float>(weight), s);
  });
}

}  // namespace ladder::LADDER_CUDA
