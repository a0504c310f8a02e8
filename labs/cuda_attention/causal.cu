// Causal attention in tiles: online softmax, then backward. labs/cuda_attention/README.md.
#include <cmath>
#include <stdexcept>

#include "labs/cuda_attention/causal.h"

namespace ladder {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr int kWarps = kCausalThreads / 32;
constexpr int kRows = kTile / kWarps;           // of a tile, for each warp
constexpr float kScale = 0.17677669529663687f;  // 1 / sqrt(kHead)

/// In every lane of a warp; all 32 call it.
__device__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}
__device__ float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}

}  // namespace

__global__ void causal_forward(float* out, float* lse, const float* q, const float* k,
                               const float* v, int T) {
  // Lanes read a column of k_tile, and rows of the others.
  __shared__ float q_tile[kTile][kHead], k_tile[kTile][kHead + 1], v_tile[kTile][kHead];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first = static_cast<int>(blockIdx.x) * kTile;
  float max[kRows], sum[kRows], o[kRows];
  for (int i = 0; i < kRows; ++i) {
    max[i] = -INFINITY;
    sum[i] = o[i] = 0;
  }
  for (int row = warp; row < kTile && first + row < T; row += kWarps)
    q_tile[row][lane] = q[(first + row) * kHead + lane];
  for (int tile = 0; tile <= first; tile += kTile) {
    __syncthreads();  // all have read the tile before
    for (int row = warp; row < kTile && tile + row < T; row += kWarps) {
      k_tile[row][lane] = k[(tile + row) * kHead + lane];
      v_tile[row][lane] = v[(tile + row) * kHead + lane];
    }
    __syncthreads();
    for (int i = 0; i < kRows && first + warp + i * kWarps < T; ++i) {
      const int row = warp + i * kWarps, query = first + row, key = tile + lane;
      float score = key <= query ? 0 : -INFINITY;
      if (key <= query)
        for (int c = 0; c < kHead; ++c) score += q_tile[row][c] * k_tile[lane][c] * kScale;
      const float largest = fmaxf(max[i], warp_max(score));
      const float p = expf(score - largest), before = expf(max[i] - largest);
      max[i] = largest;
      sum[i] = sum[i] * before + warp_sum(p);
      o[i] *= before;
      for (int j = 0; j < kTile && tile + j <= query; ++j)
        o[i] += __shfl_sync(kAllLanes, p, j) * v_tile[j][lane];
    }
  }
  for (int i = 0; i < kRows && first + warp + i * kWarps < T; ++i) {
    const int query = first + warp + i * kWarps;
    out[query * kHead + lane] = o[i] / sum[i];
    if (lane == 0) lse[query] = max[i] + logf(sum[i]);
  }
}

__global__ void causal_backward_queries(float* dq, const float* dout, const float* q,
                                        const float* k, const float* v, const float* lse,
                                        const float* delta, int T) {
  __shared__ float q_tile[kTile][kHead], dout_tile[kTile][kHead];
  __shared__ float k_tile[kTile][kHead + 1], v_tile[kTile][kHead + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first = static_cast<int>(blockIdx.x) * kTile;
  float sum[kRows] = {};
  for (int row = warp; row < kTile && first + row < T; row += kWarps) {
    q_tile[row][lane] = q[(first + row) * kHead + lane];
    dout_tile[row][lane] = dout[(first + row) * kHead + lane];
  }
  for (int tile = 0; tile <= first; tile += kTile) {
    __syncthreads();  // all have read the tile before
    for (int row = warp; row < kTile && tile + row < T; row += kWarps) {
      k_tile[row][lane] = k[(tile + row) * kHead + lane];
      v_tile[row][lane] = v[(tile + row) * kHead + lane];
    }
    __syncthreads();
    for (int i = 0; i < kRows && first + warp + i * kWarps < T; ++i) {
      const int row = warp + i * kWarps, query = first + row, key = tile + lane;
      float ds = 0;
      if (key <= query) {
        float score = 0, dp = 0;
        for (int c = 0; c < kHead; ++c) {
          score += q_tile[row][c] * k_tile[lane][c];
          dp += dout_tile[row][c] * v_tile[lane][c];
        }
        ds = expf(score * kScale - lse[query]) * (dp - delta[query]) * kScale;
      }
      for (int j = 0; j < kTile && tile + j <= query; ++j)
        sum[i] += __shfl_sync(kAllLanes, ds, j) * k_tile[j][lane];
    }
  }
  for (int i = 0; i < kRows && first + warp + i * kWarps < T; ++i)
    dq[(first + warp + i * kWarps) * kHead + lane] = sum[i];
}

__global__ void causal_backward_keys(float* dk, float* dv, const float* dout, const float* q,
                                     const float* k, const float* v, const float* lse,
                                     const float* delta, int T) {
  __shared__ float k_tile[kTile][kHead], v_tile[kTile][kHead];
  __shared__ float q_tile[kTile][kHead + 1], dout_tile[kTile][kHead + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int first = static_cast<int>(blockIdx.x) * kTile;
  float sum_k[kRows] = {}, sum_v[kRows] = {};
  for (int row = warp; row < kTile && first + row < T; row += kWarps) {
    k_tile[row][lane] = k[(first + row) * kHead + lane];
    v_tile[row][lane] = v[(first + row) * kHead + lane];
  }
  for (int tile = first; tile < T; tile += kTile) {
    __syncthreads();  // all have read the tile before
    for (int row = warp; row < kTile && tile + row < T; row += kWarps) {
      q_tile[row][lane] = q[(tile + row) * kHead + lane];
      dout_tile[row][lane] = dout[(tile + row) * kHead + lane];
    }
    const int query = tile + lane;  // of this lane
    const float log_sum = query < T ? lse[query] : 0, mean = query < T ? delta[query] : 0;
    __syncthreads();
    for (int i = 0; i < kRows && first + warp + i * kWarps < T; ++i) {
      const int row = warp + i * kWarps, key = first + row;
      float p = 0, ds = 0;
      if (query < T && key <= query) {
        float score = 0, dp = 0;
        for (int c = 0; c < kHead; ++c) {
          score += k_tile[row][c] * q_tile[lane][c];
          dp += v_tile[row][c] * dout_tile[lane][c];
        }
        p = expf(score * kScale - log_sum);
        ds = p * (dp - mean) * kScale;
      }
      for (int j = 0; j < kTile && tile + j < T; ++j) {
        sum_k[i] += __shfl_sync(kAllLanes, ds, j) * q_tile[j][lane];
        sum_v[i] += __shfl_sync(kAllLanes, p, j) * dout_tile[j][lane];
      }
    }
  }
  for (int i = 0; i < kRows && first + warp + i * kWarps < T; ++i) {
    const int key = first + warp + i * kWarps;
    dk[key * kHead + lane] = sum_k[i];
    dv[key * kHead + lane] = sum_v[i];
  }
}

}  // namespace ladder
