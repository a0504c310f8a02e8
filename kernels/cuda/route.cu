// The router (kernels.h has the formulas). One thread per token does all of its E experts, which
// are few. Then one block per sequence counts loads and sums losses.
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/documents.h"
#include "kernels/experts.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// The softmax of one token's E logits.
struct Softmax {
  float max = Max::kNeutral, sum = 0;

  __device__ Softmax(const float* x, int64_t E) {
    for (int64_t e = 0; e < E; ++e) max = Max{}(max, x[e]);
    for (int64_t e = 0; e < E; ++e) sum += expf(x[e] - max);
  }
  __device__ float of(float x) const { return expf(x - max) / sum; }
  __device__ float log_sum() const { return max + logf(sum); }
};

/// The number that makes the scores of a token add up to 1 when they are divided by it. For a
/// softmax it is 1.
__device__ float divisor(const float* scores, int64_t E, const RouteRule& rule) {
  if (!rule.sigmoid) return 1;
  float sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += scores[e];
  return sum;
}

/// What route_forward reads and writes.
struct Route {
  int32_t *expert, *load;      ///< (B,T,k), (B,E)
  float *weight, *scores;      ///< (B,T,k), (B,T,E)
  float* losses;               ///< (2,B): balance losses, then z-losses
  const float *logits, *bias;  ///< (B,T,E); (E) or null
};

/// expert, weight, scores. One thread per token.
__global__ void route_tokens(Route r, Extents s, RouteRule rule) {
  const int64_t row = thread_index();
  if (row >= s.B * s.T) return;
  const float* x = r.logits + row * s.E;
  float* p = r.scores + row * s.E;
  int32_t* chosen = r.expert + row * s.k;
  const Softmax softmax(x, s.E);
  for (int64_t e = 0; e < s.E; ++e)
    p[e] = rule.sigmoid ? 1.0f / (1.0f + expf(-x[e])) : softmax.of(x[e]);
  choose_experts<float>(chosen, p, r.bias, s.E, s.k);
  const float sum = rule.renormalize ? chosen_sum(p, chosen, s.k) : 1;
  for (int64_t j = 0; j < s.k; ++j) r.weight[row * s.k + j] = p[chosen[j]] / sum;
}

/// load, losses. One block per sequence. First each warp takes an expert, its lanes tokens; then
/// each thread takes tokens.
__global__ void sum_sequences(Route r, Extents s, RouteRule rule) {
  const int64_t b = blockIdx.x;
  const float *x = r.logits + b * s.T * s.E, *p = r.scores + b * s.T * s.E;
  const int32_t* chosen = r.expert + b * s.T * s.k;
  float balance = 0, z = 0;
  for (int64_t e = warp_index(); e < s.E; e += kThreads / kWarp) {
    int32_t load = 0;
    float P = 0;
    for (int64_t pair = lane_index(); pair < s.T * s.k; pair += kWarp) load += chosen[pair] == e;
#pragma unroll 4  // loads of four tokens are in progress at once
    for (int64_t t = lane_index(); t < s.T; t += kWarp)
      P += p[t * s.E + e] / divisor(p + t * s.E, s.E, rule);
    load = warp_sum(load);
    P = warp_sum(P);
    if (lane_index() > 0) continue;
    r.load[b * s.E + e] = load;
    balance += load_share<float>(load, s) * (P / static_cast<float>(s.T));
  }
  for (int64_t t = threadIdx.x; t < s.T; t += kThreads) {
    const float log_sum = Softmax(x + t * s.E, s.E).log_sum();
    z += log_sum * log_sum;
  }
  balance = block_sum(balance);
  z = block_sum(z);
  if (threadIdx.x > 0) return;
  r.losses[b] = balance;
  r.losses[s.B + b] = z / static_cast<float>(s.T);
}

/// What route_backward reads and writes.
struct RouteBack {
  float* dlogits;                          ///< (B,T,E)
  const float *dweight, *scores, *logits;  ///< (B,T,k), (B,T,E), (B,T,E)
  const int32_t *expert, *load;            ///< (B,T,k), (B,E)
};

/// One thread per token. dx first holds the gradient of the scores, then that of the logits.
__global__ void route_back(RouteBack r, Extents s, RouteRule rule, float balance, float z) {
  const int64_t row = thread_index();
  if (row >= s.B * s.T) return;
  const float *x = r.logits + row * s.E, *p = r.scores + row * s.E, *dw = r.dweight + row * s.k;
  const int32_t *chosen = r.expert + row * s.k, *load = r.load + row / s.T * s.E;
  float* dx = r.dlogits + row * s.E;
  // The gradient of the scores: from the balance loss and from the weights. Where scores are
  // divided by their sum, a mean is subtracted from their gradient.
  const float sum = divisor(p, s.E, rule), per_token = balance / static_cast<float>(s.T);
  float mean = 0;
  for (int64_t e = 0; e < s.E && rule.sigmoid; ++e)
    mean += per_token * load_share<float>(load[e], s) * (p[e] / sum);
  for (int64_t e = 0; e < s.E; ++e)
    dx[e] = (per_token * load_share<float>(load[e], s) - mean) / sum;
  const float taken = rule.renormalize ? chosen_sum(p, chosen, s.k) : 1;
  float common = 0;
  for (int64_t j = 0; j < s.k && rule.renormalize; ++j) common += dw[j] * (p[chosen[j]] / taken);
  for (int64_t j = 0; j < s.k; ++j) dx[chosen[j]] += (dw[j] - common) / taken;
  // The gradient of the logits: through the scores, and from the z-loss.
  mean = 0;
  for (int64_t e = 0; e < s.E; ++e) mean += dx[e] * p[e];
  const Softmax softmax(x, s.E);
  const float slope = z * 2 * softmax.log_sum() / static_cast<float>(s.T);
  for (int64_t e = 0; e < s.E; ++e) {
    const float through = rule.sigmoid ? dx[e] * (1 - p[e]) : dx[e] - mean;
    dx[e] = fmaf(slope, softmax.of(x[e]), p[e] * through);
  }
}

}  // namespace

void route_forward(const Ctx& ctx, Tensor expert, Tensor weight, Tensor scores, Tensor load,
                   Tensor losses, Tensor logits, Tensor bias, const RouteRule& rule) {
  refuse_documents(ctx, "route_forward");
  const Extents s =
      check_shapes(Op::route_forward, expert, weight, scores, load, losses, logits, bias);
  const Route route{.expert = device_data<int32_t>(expert),
                    .load = device_data<int32_t>(load),
                    .weight = device_data<float>(weight),
                    .scores = device_data<float>(scores),
                    .losses = device_data<float>(losses),
                    .logits = device_data<float>(logits),
                    .bias = device_data<float>(bias)};
  launch(ctx, route_tokens, grid_over<1>(s.B * s.T), kThreads, 0, route, s, rule);
  launch(ctx, sum_sequences, {.x = s.B}, kThreads, 0, route, s, rule);
}

void route_backward(const Ctx& ctx, Tensor dlogits, Tensor dweight, Tensor expert, Tensor scores,
                    Tensor load, Tensor logits, const RouteRule& rule, float balance, float z) {
  const Extents s =
      check_shapes(Op::route_backward, dlogits, dweight, expert, scores, load, logits);
  const RouteBack back{.dlogits = device_data<float>(dlogits),
                       .dweight = device_data<float>(dweight),
                       .scores = device_data<float>(scores),
                       .logits = device_data<float>(logits),
                       .expert = device_data<int32_t>(expert),
                       .load = device_data<int32_t>(load)};
  launch(ctx, route_back, grid_over<1>(s.B * s.T), kThreads, 0, back, s, rule, balance, z);
}

}  // namespace ladder::LADDER_CUDA
