// Softmax cross-entropy and its gradient: a block takes a token's row of logits.
//
// Maximum and sum are found in one pass (arXiv 1805.02867): a sum of exp(x - m) becomes one of
// exp(x - m') when a larger m' turns up. A second pass writes the gradient; it finds the row in
// the cache, because blocks of many threads are few at a time.
//
// Device code cannot throw: a target outside the vocabulary makes the loss NaN.
#include <algorithm>
#include <limits>

#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// sum_v exp(x_v - max), for the x_v met so far. NaN and infinity make the sum NaN.
struct Softmax {
  float max = std::numeric_limits<float>::lowest();  // -infinity would be subtracted from itself
  float sum = 0;
};

/// Takes W more numbers.
template <int W>
__device__ void grow(Softmax& s, const Floats<W>& x) {
  float larger = s.max;
  for (int i = 0; i < W; ++i) larger = x.at[i] > larger ? x.at[i] : larger;
  if (larger > s.max) s.sum *= expf(s.max - larger);
  s.max = larger;
  for (int i = 0; i < W; ++i) s.sum += expf(x.at[i] - s.max);
}

/// W logits from v on; those of the padding are -infinity, whose exponential is 0.
template <int W, class T>
__device__ Floats<W> load_logits(const T* x, int64_t v, int64_t vocab) {
  Floats<W> logits = load<W>(x + v);
  for (int i = 0; i < W; ++i)
    if (v + i >= vocab) logits.at[i] = -std::numeric_limits<float>::infinity();
  return logits;
}

/// Maximum and sum of a row, in all threads.
template <int W, class T>
__device__ Softmax softmax_of(const T* x, int64_t vocab) {
  Softmax own;
  const int64_t step = blockDim.x * W;
  for (int64_t v = threadIdx.x * W; v < vocab; v += step) grow(own, load_logits<W>(x, v, vocab));
  const float max = block_max(own.max);
  return {.max = max, .sum = block_sum(own.sum * expf(own.max - max))};
}

/// dx[v] = (exp(x_v - max) / sum - [v = target]) scale; dx may be x.
template <int W, class T>
__device__ void write_gradient(T* dx, const T* x, const Softmax& s, int64_t target, int64_t V,
                               int64_t vocab, float scale) {
  const float inverse = 1 / s.sum;
  const int64_t step = blockDim.x * W;
  for (int64_t v = threadIdx.x * W; v < V; v += step) {
    Floats<W> d = load_logits<W>(x, v, vocab);
    for (int i = 0; i < W; ++i) {
      const float p = v + i < vocab ? expf(d.at[i] - s.max) * inverse : 0;
      d.at[i] = (p - (v + i == target ? 1.0f : 0.0f)) * scale;
    }
    store<W>(dx + v, d);
  }
}

/// token_losses (rows); dlogits (rows,V) or null; logits (rows,V); targets (rows). A block a row.
template <class T, int W>
__global__ void token_rows(float* token_losses, T* dlogits, const T* logits, const int32_t* targets,
                           int64_t V, int64_t vocab, float scale) {
  const int64_t row = blockIdx.x;
  const T* x = logits + row * V;
  T* dx = dlogits ? dlogits + row * V : nullptr;
  const int32_t target = targets[row];
  if (target == kIgnore) {
    for (int64_t v = threadIdx.x * W; dx && v < V; v += blockDim.x * W) store<W>(dx + v, {});
    if (threadIdx.x == 0) token_losses[row] = 0;
    return;
  }
  const bool known = target >= 0 && target < vocab;
  // Before the barriers of the sum, behind which the gradient may cover x.
  const float x_target = known ? to_float(x[target]) : std::numeric_limits<float>::quiet_NaN();
  const Softmax s = softmax_of<W>(x, vocab);
  if (dx) write_gradient<W>(dx, x, s, target, V, vocab, scale);
  if (threadIdx.x == 0) token_losses[row] = logf(s.sum) + s.max - x_target;
}

/// losses (B), a block for each; token_losses (B,T)
__global__ void sum_losses(float* losses, const float* token_losses, int64_t T) {
  float sum = 0;
  for (int64_t t = threadIdx.x; t < T; t += blockDim.x) sum += token_losses[blockIdx.x * T + t];
  sum = block_sum(sum);
  if (threadIdx.x == 0) losses[blockIdx.x] = sum;
}

}  // namespace

void cross_entropy(const Ctx& ctx, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                   int64_t vocab, float scale) {
  const CrossEntropyShape s = check_cross_entropy(losses, dlogits, logits, targets, vocab);
  Scratch scratch(ctx);
  auto* token_losses = scratch.take<float>(s.B * s.T);
  dispatch(logits.dtype, [&]<class T>(Type<T>) {
    dispatch_width<T>(s.V, {dlogits, logits}, [&]<int W>(Width<W>) {
      const int64_t threads = std::min<int64_t>(round_up<int64_t>(ceil_div(s.V, W), kWarp), 1024);
      launch(ctx, token_rows<T, W>, {.x = s.B * s.T}, static_cast<int>(threads), 0, token_losses,
             device_data<T>(dlogits), device_data<T>(logits), device_data<int32_t>(targets), s.V,
             vocab, scale);
    });
  });
  launch(ctx, sum_losses, {.x = s.B}, kThreads, 0, device_data<float>(losses), token_losses, s.T);
}

}  // namespace ladder::LADDER_CUDA
