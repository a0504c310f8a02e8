// The kernels of lab cuda_attention, for their check.
#pragma once

#include <cuda_runtime.h>

namespace ladder {

constexpr int kHead = 32;               ///< numbers of a query, a key, a value
constexpr int kTile = 32;               ///< queries or keys
constexpr int kCausalThreads = 4 * 32;  ///< of a block

// One head of causal attention over T tokens. With p(t,u) = exp(s(t,u) - lse[t]) for u <= t:
//   s(t,u) = q[t] . k[u] / sqrt(kHead)
//   lse[t] = log(sum over u <= t of exp(s(t,u)))
//   out[t] = sum over u <= t of p(t,u) v[u]
// Backward, with delta[t] = dout[t] . out[t], and ds(t,u) = p(t,u) (dout[t] . v[u] - delta[t]) /
// sqrt(kHead):
//   dq[t] = sum over u <= t of ds(t,u) k[u]
//   dk[u] = sum over t >= u of ds(t,u) q[t]
//   dv[u] = sum over t >= u of p(t,u) dout[t]
// lse and delta are (T), all else is (T,kHead). Block b owns the tile of tokens from b kTile on,
// and there are as many blocks as tiles.

/// Writes out and lse; a block owns queries.
__global__ void causal_forward(float* out, float* lse, const float* q, const float* k,
                               const float* v, int T);

/// Writes dq; a block owns queries.
__global__ void causal_backward_queries(float* dq, const float* dout, const float* q,
                                        const float* k, const float* v, const float* lse,
                                        const float* delta, int T);

/// Writes dk and dv; a block owns keys.
__global__ void causal_backward_keys(float* dk, float* dv, const float* dout, const float* q,
                                     const float* k, const float* v, const float* lse,
                                     const float* delta, int T);

}  // namespace ladder
