// One step of Adafactor (arXiv 1804.04235): the second moment of a matrix as a factor per row and a
// factor per column. With gradient g (R,N) and q = g^2 + eps:
//   row (R), col (N): moving averages of mean_n q and of mean_r q;
//   u = g / sqrt(row col / mean(row));   w -= lr (u / max(1, rms(u) / clip) + decay w).
// u is computed twice and never stored: once for its rms, once for the update. The shape alone
// fixes the order of every sum.
#include "kernels/cuda/columns.h"
#include "kernels/cuda/table.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {
namespace {

/// What the passes over a matrix share. A vector is a matrix of one row, and has no `col`.
struct Problem {
  int64_t R, N;
  float* w;        ///< (R,N)
  float* row;      ///< (R), or (N) without col
  float* col;      ///< (N) or null
  const float* g;  ///< (R,N)
  float* col_sum;  ///< (N): sums of q
  float* squares;  ///< (R): sums of u^2
  float* scalars;  ///< (2): see below
  AdafactorStep step;

  /// Of a gradient.
  __device__ float q(float slope) const { return fmaf(slope, slope, step.eps); }
  /// old = beta2 old + (1 - beta2) fresh
  __device__ void blend(float& old, float fresh) const {
    old = step.beta2 * old + (1 - step.beta2) * fresh;
  }
};
// The scalars.
constexpr int kInverseMean = 0;  ///< 1 / mean(row)
constexpr int kShrink = 1;       ///< 1 / max(1, rms(u) / clip)

/// row = beta2 row + (1 - beta2) mean_n q. One block per row.
template <int W>
__global__ void update_rows(Problem p) {
  const int64_t row = blockIdx.x;
  float sum = 0;
  for (int64_t n = threadIdx.x * W; n < p.N; n += kThreads * W) {
    const Floats<W> g = load<W>(p.g + row * p.N + n);
    for (int i = 0; i < W; ++i) sum += p.q(g.at[i]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) p.blend(p.row[row], sum / static_cast<float>(p.N));
}

/// The terms of col_sum.
template <int W>
struct SquareTerms {
  Problem p;

  __device__ void add(Floats<W> (&sum)[1], int64_t row, int64_t n) const {
    const Floats<W> g = load<W>(p.g + row * p.N + n);
    for (int i = 0; i < W; ++i) sum[0].at[i] += p.q(g.at[i]);
  }
};

/// col = beta2 col + (1 - beta2) mean_r q
__global__ void update_columns(Problem p) {
  const int64_t n = thread_index();
  if (n < p.N) p.blend(p.col[n], p.col_sum[n] / static_cast<float>(p.R));
}

/// A vector's whole second moment: row = beta2 row + (1 - beta2) q
__global__ void update_vector(Problem p) {
  const int64_t n = thread_index();
  if (n < p.N) p.blend(p.row[n], p.q(p.g[n]));
}

/// The sum of x (R), by one block.
__device__ float sum_of(const float* x, int64_t R) {
  float sum = 0;
  for (int64_t r = threadIdx.x; r < R; r += blockDim.x) sum += x[r];
  return block_sum(sum);
}

__global__ void __launch_bounds__(kMaxThreads) find_inverse_mean(Problem p) {
  const float inverse = p.col ? static_cast<float>(p.R) / sum_of(p.row, p.R) : 1;
  if (threadIdx.x == 0) p.scalars[kInverseMean] = inverse;
}

__global__ void __launch_bounds__(kMaxThreads) find_shrink(Problem p) {
  const float rms = sqrtf(sum_of(p.squares, p.R) / static_cast<float>(p.R * p.N));
  const float excess = rms / p.step.clip;
  if (threadIdx.x == 0) p.scalars[kShrink] = excess > 1 ? 1 / excess : 1;
}

/// u before clipping, for W columns of a row: g / sqrt(row col / mean(row)), or g / sqrt(row) for a
/// vector. The root of each factor is taken by itself: where gradients are zero, the product of
/// both is eps^2 = 1e-60.
template <int W>
__device__ Floats<W> direction(const Problem& p, int64_t row, int64_t n) {
  Floats<W> u = load<W>(p.g + row * p.N + n);
  const Floats<W> second = load<W>((p.col ? p.col : p.row) + n);
  const float scale = p.col ? 1 / sqrtf(p.row[row] * p.scalars[kInverseMean]) : 1;
  for (int i = 0; i < W; ++i) u.at[i] = u.at[i] * scale / sqrtf(second.at[i]);
  return u;
}

/// squares = sum_n u^2. One block per row.
template <int W>
__global__ void sum_squares(Problem p) {
  const int64_t row = blockIdx.x;
  float sum = 0;
  for (int64_t n = threadIdx.x * W; n < p.N; n += kThreads * W) {
    const Floats<W> u = direction<W>(p, row, n);
    for (int i = 0; i < W; ++i) sum = fmaf(u.at[i], u.at[i], sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) p.squares[row] = sum;
}

/// w -= lr (u shrink + decay w). One block per row.
template <int W>
__global__ void update_weights(Problem p) {
  const int64_t row = blockIdx.x;
  const float shrink = p.scalars[kShrink];
  for (int64_t n = threadIdx.x * W; n < p.N; n += kThreads * W) {
    float* to = p.w + row * p.N + n;
    const Floats<W> u = direction<W>(p, row, n);
    Floats<W> w = load<W>(to);
    for (int i = 0; i < W; ++i)
      w.at[i] -= p.step.lr * fmaf(p.step.weight_decay, w.at[i], u.at[i] * shrink);
    store<W>(to, w);
  }
}

/// Updates both factors, or the moment of a vector.
template <int W>
void update_moments(const Ctx& ctx, Scratch& scratch, const Problem& p) {
  if (!p.col) return launch(ctx, update_vector, grid_over<1>(p.N), kThreads, 0, p);
  constexpr int64_t kRowsOfLeaf = 256;
  launch(ctx, update_rows<W>, {.x = p.R}, kThreads, 0, p);
  const auto chunks = static_cast<int>(2 * ceil_div(p.R, kRowsOfLeaf));
  sum_columns<1, W>(ctx, {p.col_sum}, scratch, SquareTerms<W>{p}, {chunks, {1, p.R}}, p.N,
                    Into::Write);
  launch(ctx, update_columns, grid_over<1>(p.N), kThreads, 0, p);
}

}  // namespace

void adafactor_update(const Ctx& ctx, Tensor param, Tensor row, Tensor col, Tensor grad,
                      const AdafactorStep& step) {
  const Extents s = check_shapes(Op::adafactor_update, param, row, col, grad);
  if (grad.size() == 0) return;
  Scratch scratch(ctx);
  const Problem p{.R = s.R,
                  .N = s.N,
                  .w = device_data<float>(param),
                  .row = device_data<float>(row),
                  .col = device_data<float>(col),
                  .g = device_data<float>(grad),
                  .col_sum = scratch.take<float>(s.N),
                  .squares = scratch.take<float>(s.R),
                  .scalars = scratch.take<float>(2),
                  .step = step};
  dispatch_width<float>(s.N, {param, col ? col : row, grad}, [&]<int W>(Width<W>) {
    update_moments<W>(ctx, scratch, p);
    launch(ctx, find_inverse_mean, {}, kMaxThreads, 0, p);
    launch(ctx, sum_squares<W>, {.x = p.R}, kThreads, 0, p);
    launch(ctx, find_shrink, {}, kMaxThreads, 0, p);
    launch(ctx, update_weights<W>, {.x = p.R}, kThreads, 0, p);
  });
}

}  // namespace ladder::LADDER_CUDA
