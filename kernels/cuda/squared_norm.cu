// Squared norms as integers (kernels/limbs.h), and the adaptive clipping that uses them.
//
// Integers may be added in any order. So each thread adds leaves to its own limbs, then threads
// join their limbs, then blocks. The result is that of ref, bit for bit.
#include <algorithm>

#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/limbs.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

using Limb = unsigned long long;  // the type of atomicAdd; int64_t wraps alike

/// The sum of the squares of 16 neighbors, or of `count`, in ascending order. Squares are exact in
/// double.
template <int W>
__device__ double leaf_of(const float* x, int64_t count) {
  // Loads of 16 bytes, all in progress at once. Zeros past the end change no bit.
  const Floats<kNormLeaf> leaf = load_part<kNormLeaf, W>(x, count);
  double sum = 0;
  for (const float element : leaf.at) sum += double{element} * double{element};
  return sum;
}

/// add_to_limbs() for limbs in registers, which have no index: each limb looks for its own part.
__device__ void add_leaf(Limb (&limbs)[kLimbs], double leaf) {
  if (!fits_limbs(leaf)) {
    ++limbs[kNonfiniteLimb];
    return;
  }
  const LeafLimbs pieces = limbs_of(leaf);
#pragma unroll
  for (int j = 0; j < kNonfiniteLimb; ++j) {
    const int i = j - pieces.first;
    uint32_t part = i == 0 ? pieces.part[0] : 0;
    part = i == 1 ? pieces.part[1] : part;
    part = i == 2 ? pieces.part[2] : part;
    limbs[j] += part;
  }
}

/// partial (R,kLimbs,stripes): the squared norm of each stripe of x (R,N). A stripe is the part of
/// a row's leaves that one block adds up: each of its threads takes every (stripes x threads)-th
/// leaf.
template <int W>
__global__ void sum_stripes(Limb* partial, const float* x, int64_t N) {
  __shared__ Limb total[kLimbs];
  if (threadIdx.x < kLimbs) total[threadIdx.x] = 0;
  __syncthreads();
  const int64_t row = blockIdx.x, stripe = blockIdx.y, stripes = gridDim.y;
  Limb own[kLimbs] = {};
  const int64_t step = stripes * blockDim.x * kNormLeaf;
  for (int64_t n = (stripe * blockDim.x + threadIdx.x) * kNormLeaf; n < N; n += step)
    add_leaf(own, leaf_of<W>(x + row * N + n, N - n));
#pragma unroll
  for (int j = 0; j < kLimbs; ++j) {
    const Limb warp = warp_sum(own[j]);
    if (lane_index() == 0 && warp != 0) atomicAdd(&total[j], warp);
  }
  __syncthreads();
  if (threadIdx.x < kLimbs)
    partial[(row * kLimbs + threadIdx.x) * stripes + stripe] = total[threadIdx.x];
}

/// limbs (R,kLimbs) += the sum of partial (R,kLimbs,stripes) over stripes. One block per row, one
/// warp per limb.
__global__ void add_stripes(Limb* limbs, const Limb* partial, int64_t stripes) {
  const int64_t limb = blockIdx.x * kLimbs + warp_index();
  Limb sum = 0;
#pragma unroll 8
  for (int64_t stripe = lane_index(); stripe < stripes; stripe += kWarp)
    sum += partial[limb * stripes + stripe];
  sum = warp_sum(sum);
  if (lane_index() == 0 && sum != 0) limbs[limb] += sum;
}

/// The root of the number that limbs hold, but at least `least`. NaN stays NaN.
__device__ double norm_of(const int64_t* limbs, double least) {
  const double norm = sqrt(limbs_value(limbs));
  return norm < least ? least : norm;
}

/// grad = grad min(1, clip max(|w|, 1e-3) / max(|grad|, 1e-6)): arXiv 2102.06171, equation 3. grad
/// (R,N); grad_limbs, weight_limbs (R,kLimbs): squared norms. One block per row.
template <int W>
__global__ void clip_rows(float* grad, const int64_t* grad_limbs, const int64_t* weight_limbs,
                          int64_t N, float clip) {
  __shared__ float shared_factor;
  const int64_t row = blockIdx.x;
  if (threadIdx.x == 0)  // one thread: limbs may lie in host memory
    shared_factor = static_cast<float>(clip * norm_of(weight_limbs + row * kLimbs, 1e-3) /
                                       norm_of(grad_limbs + row * kLimbs, 1e-6));
  __syncthreads();
  const float factor = shared_factor;
  if (factor >= 1) return;  // NaN goes on, so that it shows
  for (int64_t n = threadIdx.x * W; n < N; n += kThreads * W) {
    Floats<W> g = load<W>(grad + row * N + n);
    for (int i = 0; i < W; ++i) g.at[i] *= factor;
    store<W>(grad + row * N + n, g);
  }
}

}  // namespace

void squared_norm(const Ctx& ctx, Tensor limbs, Tensor x) {
  const Extents s = check_shapes(Op::squared_norm, limbs, x);
  constexpr int64_t kBlocks = 2048;  // more than a GPU runs at once
  if (s.R == 0) return;
  const int64_t leaves = ceil_div(s.N, kNormLeaf);
  const int64_t threads = std::clamp<int64_t>(round_up<int64_t>(leaves, kWarp), kWarp, kThreads);
  const int64_t stripes = std::clamp<int64_t>(ceil_div(leaves, threads), 1, ceil_div(kBlocks, s.R));
  Scratch scratch(ctx);
  auto* partial = scratch.take<Limb>(s.R * stripes * kLimbs);
  dispatch_width<float>(s.N, {x}, [&]<int W>(Width<W>) {
    launch(ctx, sum_stripes<W>, {.x = s.R, .y = stripes}, static_cast<int>(threads), 0, partial,
           device_data<float>(x), s.N);
  });
  launch(ctx, add_stripes, {.x = s.R}, kLimbs * kWarp, 0,
         reinterpret_cast<Limb*>(device_data<int64_t>(limbs)), partial, stripes);
}

void adaptive_clip(const Ctx& ctx, Tensor grad, Tensor grad_limbs, Tensor weight_limbs,
                   float clip) {
  const Extents s = check_shapes(Op::adaptive_clip, grad, grad_limbs, weight_limbs);
  dispatch_width<float>(s.N, {grad}, [&]<int W>(Width<W>) {
    launch(ctx, clip_rows<W>, {.x = s.R}, kThreads, 0, device_data<float>(grad),
           device_data<int64_t>(grad_limbs), device_data<int64_t>(weight_limbs), s.N, clip);
  });
}

}  // namespace ladder::LADDER_CUDA
