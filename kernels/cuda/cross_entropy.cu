// Softmax cross-entropy and its gradient. A block takes one token's row of logits.
//
// Maximum and sum are found in one pass (arXiv 1805.02867): when a larger maximum m' turns up, the
// sum of exp(x - m) is turned into one of exp(x - m'). A second pass writes the gradient. If shared
// memory has room for the row, the row is copied there first. Then all of its loads are in progress
// at once, and it is read from memory only once. Tensor-parallel ranks exchange between maximum,
// sum and gradient, so for them each is an operation of its own.
//
// Device code cannot throw. A target outside the vocabulary makes the loss NaN.
#include <algorithm>
#include <limits>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/documents.h"
#include "kernels/shapes.h"
#include "launch.h"
#include "ptx.h"

namespace ladder::LADDER_CUDA {
namespace {

/// sum_v exp(x_v - max), over the x_v so far. NaN and +infinity make the sum NaN.
struct Softmax {
  float max = std::numeric_limits<float>::lowest();  // -infinity minus itself would be NaN
  float sum = 0;
};

/// At least the shared memory of a block that block_max() and block_sum() need.
constexpr int64_t kStaticShared = 1 << 10;
/// Most threads of a block. Two blocks of an SM then have 64 registers per thread.
constexpr int kRowThreads = 512;

/// e^x
__device__ float exp_of(float x) { return exp2_quick(x * kLog2e); }

/// Includes W more numbers.
template <int W>
__device__ void grow(Softmax& s, const Floats<W>& x) {
  float larger = s.max;
  for (int i = 0; i < W; ++i) larger = fmaxf(larger, x.at[i]);
  if (larger > s.max) s.sum *= exp_of(s.max - larger);
  s.max = larger;
  for (int i = 0; i < W; ++i) s.sum += exp_of(x.at[i] - s.max);
}

/// x: columns v, v + 1, ... of a row. Those from `vocab` on are padding, and become `instead`.
template <int W>
__device__ void replace_padding(Floats<W>& x, int64_t v, int64_t vocab, float instead) {
  if (v + W <= vocab) return;
  for (int i = 0; i < W; ++i)
    if (v + i >= vocab) x.at[i] = instead;
}

/// Calls f(W logits) for this thread's share of the row. Padding reads as -infinity, whose
/// exponential is 0.
template <int W, class T, class F>
__device__ void for_logits(const T* x, int64_t vocab, F&& f) {
  const int64_t step = blockDim.x * W;
  for (int64_t v = threadIdx.x * W; v < vocab; v += step) {
    Floats<W> logits = load<W>(x + v);
    replace_padding(logits, v, vocab, -std::numeric_limits<float>::infinity());
    f(logits);
  }
}

/// The maximum and the sum of a row, in all threads.
template <int W, class T>
__device__ Softmax softmax_of(const T* x, int64_t vocab) {
  Softmax own;
  for_logits<W>(x, vocab, [&](const Floats<W>& logits) { grow(own, logits); });
  const float max = block_max(own.max);
  return {.max = max, .sum = block_sum(own.sum * exp_of(own.max - max))};
}

/// dx[v] = (exp(x_v - max) / sum - [v = target]) scale; 0 in padding. dx may be x.
template <int W, class T>
__device__ void write_gradient(T* dx, const T* x, const Softmax& s, int64_t target, int64_t V,
                               int64_t vocab, float scale) {
  const float factor = scale / s.sum;
  const int64_t step = blockDim.x * W;
  for (int64_t v = threadIdx.x * W; v < V; v += step) {
    Floats<W> d = load<W>(x + v);
    for (int i = 0; i < W; ++i) d.at[i] = exp_of(d.at[i] - s.max) * factor;
    if (v <= target && target < v + W)
      for (int i = 0; i < W; ++i)
        if (v + i == target) d.at[i] -= scale;
    replace_padding(d, v, vocab, 0);
    store<W>(dx + v, d);
  }
}

/// The tensors of losses and gradients. token_losses (rows); dlogits (rows,V) or null; logits
/// (rows,V); targets (rows)
template <class T>
struct LogitRows {
  float* token_losses;
  T* dlogits;
  const T* logits;
  const int32_t* targets;
  int64_t V, vocab;
  float scale;
};

/// x[target] of a row. -0 if the target is not `here`, on this rank; NaN if it is no column.
template <class T>
__device__ float target_logit(const T* x, int32_t target, int64_t vocab, bool here) {
  if (!here) return -0.0F;
  const bool known = target >= 0 && target < vocab;
  return known ? to_float(x[target]) : std::numeric_limits<float>::quiet_NaN();
}

/// Whether the block's row is ignored. If so, its loss and its gradient become 0.
template <int W, class T>
__device__ bool ignored(const LogitRows<T>& rows) {
  const int64_t row = blockIdx.x;
  if (rows.targets[row] != kIgnore) return false;
  T* dx = rows.dlogits ? rows.dlogits + row * rows.V : nullptr;
  for (int64_t v = threadIdx.x * W; dx && v < rows.V; v += blockDim.x * W) store<W>(dx + v, {});
  if (threadIdx.x == 0) rows.token_losses[row] = 0;
  return true;
}

/// The loss and the gradient of the block's row x (V).
template <int W, class T>
__device__ void finish(const LogitRows<T>& rows, const T* x, const Softmax& s, float x_target) {
  const int64_t row = blockIdx.x;
  if (rows.dlogits)
    write_gradient<W>(rows.dlogits + row * rows.V, x, s, rows.targets[row], rows.V, rows.vocab,
                      rows.scale);
  if (threadIdx.x == 0) rows.token_losses[row] = logf(s.sum) + s.max - x_target;
}

/// Copies x (V) to shared memory. There is no barrier: a thread may read only what it copied
/// itself, in groups of four words.
template <class T>
__device__ const T* copy_row(const T* x, int64_t V) {
  constexpr int W = kWidth<T>;
  T* copy = dynamic_shared<T>();
  for (int64_t v = threadIdx.x * W; v < V; v += blockDim.x * W) cp_async_16(copy + v, x + v);
  cp_async_commit();
  cp_async_wait<0>();
  return copy;
}

/// One block per row. If kCopied, the row is copied to shared memory.
template <class T, int W, bool kCopied>
__global__ void __launch_bounds__(kRowThreads) token_rows(LogitRows<T> rows) {
  if (ignored<W>(rows)) return;
  const T* x = rows.logits + blockIdx.x * rows.V;
  // Read before the barriers of the sum: after them, the gradient may overwrite x.
  const float x_target = target_logit(x, rows.targets[blockIdx.x], rows.vocab, true);
  if constexpr (kCopied) x = copy_row(x, rows.V);
  finish<W>(rows, x, softmax_of<W>(x, rows.vocab), x_target);
}

/// max (rows); logits (rows,V). One block per row.
template <class T, int W>
__global__ void __launch_bounds__(kRowThreads)
    max_rows(float* max, const T* logits, int64_t V, int64_t vocab) {
  float own = Max::kNeutral;
  for_logits<W>(logits + blockIdx.x * V, vocab, [&](const Floats<W>& x) {
    for (int i = 0; i < W; ++i) own = Max{}(own, x.at[i]);
  });
  own = block_max(own);
  if (threadIdx.x == 0) max[blockIdx.x] = own;
}

/// sum, target, max (rows); logits (rows,V); targets (rows). One block per row.
template <class T, int W>
__global__ void __launch_bounds__(kRowThreads)
    exponential_rows(float* sum, float* target, const T* logits, const float* max,
                     const int32_t* targets, int64_t V, int64_t vocab) {
  const int64_t row = blockIdx.x;
  const T* x = logits + row * V;
  const float m = max[row];
  float own = 0;
  for_logits<W>(x, vocab, [&](const Floats<W>& logit) {
    for (int i = 0; i < W; ++i) own += exp_of(logit.at[i] - m);
  });
  own = block_sum(own);
  if (threadIdx.x > 0) return;
  const bool here = targets[row] != kIgnore && targets[row] != kElsewhere;
  sum[row] = own;
  target[row] = target_logit(x, targets[row], vocab, here);
}

/// max, sum, target (rows) of all ranks. One block per row.
template <class T, int W>
__global__ void __launch_bounds__(kRowThreads)
    loss_rows(LogitRows<T> rows, const float* max, const float* sum, const float* target) {
  if (ignored<W>(rows)) return;
  const int64_t row = blockIdx.x;
  finish<W>(rows, rows.logits + row * rows.V, {.max = max[row], .sum = sum[row]}, target[row]);
}

/// losses, one block for each sequence; token_losses (B,T)
__global__ void sum_losses(float* losses, const float* token_losses, Sequences sequences) {
  const Range rows = sequences[blockIdx.x];
  float sum = 0;
  for (int64_t row = rows.begin + threadIdx.x; row < rows.end; row += blockDim.x)
    sum += token_losses[row];
  sum = block_sum(sum);
  if (threadIdx.x == 0) losses[blockIdx.x] = rows.size() > 0 ? sum : -0.0F;
}

/// Calls f(Type<T>, Width<W>, threads) for a kernel with one block per row of tensors like
/// `logits`.
template <class F>
void dispatch_rows(const Tensor& dlogits, const Tensor& logits, F&& f) {
  const int64_t V = logits.dim(-1);
  dispatch(logits.dtype, [&]<class T>(Type<T> type) {
    dispatch_width<T>(V, {dlogits, logits}, [&]<int W>(Width<W> width) {
      const int64_t threads =
          std::clamp<int64_t>(round_up<int64_t>(ceil_div(V, W), kWarp), kWarp, kRowThreads);
      f(type, width, static_cast<int>(threads));
    });
  });
}

/// Calls f(rows, Width<W>, threads), which launches a kernel for losses and gradients of tokens.
/// Then sums the losses of each sequence.
template <class F>
void for_losses(const Ctx& ctx, const Extents& s, const Tensor& losses, const Tensor& dlogits,
                const Tensor& logits, const Tensor& targets, int64_t vocab, float scale, F&& f) {
  Scratch scratch(ctx);
  auto* token_losses = scratch.take<float>(s.B * s.T);
  dispatch_rows(dlogits, logits, [&]<class T, int W>(Type<T>, Width<W> width, int threads) {
    f(LogitRows<T>{token_losses, device_data<T>(dlogits), device_data<T>(logits),
                   device_data<int32_t>(targets), s.V, vocab, scale},
      width, threads);
  });
  launch(ctx, sum_losses, {.x = losses.size()}, kThreads, 0, device_data<float>(losses),
         token_losses, all_sequences_of(ctx, s.B, s.T));
}

}  // namespace

void cross_entropy(const Ctx& ctx, Tensor losses, Tensor dlogits, Tensor logits, Tensor targets,
                   int64_t vocab, float scale) {
  const Extents s = check_shapes(Op::cross_entropy, ctx, losses, dlogits, logits, targets, vocab);
  for_losses(ctx, s, losses, dlogits, logits, targets, vocab, scale,
             [&]<class T, int W>(const LogitRows<T>& rows, Width<W>, int threads) {
               // Rows that are aligned (W > 1) and fit are copied.
               if (const int64_t bytes = s.V * int64_t{sizeof(T)};
                   W == kWidth<T> && bytes + kStaticShared <= device_of(ctx).max_shared_bytes())
                 launch(ctx, token_rows<T, W, W == kWidth<T>>, {.x = s.B * s.T}, threads, bytes,
                        rows);
               else
                 launch(ctx, token_rows<T, W, false>, {.x = s.B * s.T}, threads, 0, rows);
             });
}

void softmax_max(const Ctx& ctx, Tensor max, Tensor logits, int64_t vocab) {
  const Extents s = check_shapes(Op::softmax_max, max, logits, vocab);
  dispatch_rows(Tensor{}, logits, [&]<class T, int W>(Type<T>, Width<W>, int threads) {
    launch(ctx, max_rows<T, W>, {.x = s.B * s.T}, threads, 0, device_data<float>(max),
           device_data<T>(logits), s.V, vocab);
  });
}

void softmax_sum(const Ctx& ctx, Tensor sum, Tensor target, Tensor logits, Tensor max,
                 Tensor targets, int64_t vocab) {
  const Extents s = check_shapes(Op::softmax_sum, sum, target, logits, max, targets, vocab);
  dispatch_rows(Tensor{}, logits, [&]<class T, int W>(Type<T>, Width<W>, int threads) {
    launch(ctx, exponential_rows<T, W>, {.x = s.B * s.T}, threads, 0, device_data<float>(sum),
           device_data<float>(target), device_data<T>(logits), device_data<float>(max),
           device_data<int32_t>(targets), s.V, vocab);
  });
}

void softmax_loss(const Ctx& ctx, Tensor losses, Tensor dlogits, Tensor logits, Tensor max,
                  Tensor sum, Tensor target, Tensor targets, int64_t vocab, float scale) {
  const Extents s = check_shapes(Op::softmax_loss, ctx, losses, dlogits, logits, max, sum, target,
                                 targets, vocab);
  for_losses(ctx, s, losses, dlogits, logits, targets, vocab, scale,
             [&]<class T, int W>(const LogitRows<T>& rows, Width<W>, int threads) {
               launch(ctx, loss_rows<T, W>, {.x = s.B * s.T}, threads, 0, rows,
                      device_data<float>(max), device_data<float>(sum), device_data<float>(target));
             });
}

}  // namespace ladder::LADDER_CUDA
