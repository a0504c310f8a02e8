// Conversion from one floating-point format to another.
#include <algorithm>
#include <cuda_fp8.h>
#include <type_traits>

#include "kernels/cuda/scratch.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/narrow.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// How many neighbors a thread takes: 16 bytes of a 16-bit format.
constexpr int kNeighbors = 8;

/// out, inp (n)
template <int W, class To, class From>
__global__ void convert(To* out, const From* inp, int64_t n) {
  const int64_t i = thread_index() * W, count = n - i;
  if (count > 0) store_part<W>(out + i, load_part<W>(inp + i, count), count);
}

/// Stores the codes of x times scale, saturated. If `count` is W, it is one access. From compute
/// capability 8.9 on, one instruction makes two codes.
template <class Fp8, int W>
__device__ void store_codes(Fp8* to, const Floats<W>& x, float scale, int64_t count) {
  constexpr auto kKind = std::is_same_v<Fp8, E4m3> ? __NV_E4M3 : __NV_E5M2;
  uint8_t codes[W + W % 2];
#pragma unroll
  for (int i = 0; i < W; i += 2) {
    const float next = i + 1 < W ? x.at[(i + 1) % W] * scale : 0.0f;
    const uint16_t pair =
        __nv_cvt_float2_to_fp8x2(float2{x.at[i] * scale, next}, __NV_SATFINITE, kKind);
    std::memcpy(codes + i, &pair, sizeof(pair));
  }
  if (W == kNeighbors && count >= W) {
    Word<kNeighbors> word;
    std::memcpy(&word, codes, W);
    *reinterpret_cast<Word<kNeighbors>*>(to) = word;
  } else {
    for (int i = 0; i < W; ++i)
      if (i < count) to[i].bits = codes[i];
  }
}

/// out, inp (n); amax: the largest magnitude that each block met, or NaN if it met one.
template <int W, class Fp8, class From>
__global__ void convert_to_fp8(Fp8* out, float* amax, const From* inp, int64_t n, float scale) {
  float largest = 0;
  for (int64_t i = thread_index() * W; i < n; i += thread_count() * W) {
    const Floats<W> x = load_part<W>(inp + i, n - i);
    for (int j = 0; j < W; ++j) largest = Max{}(largest, fabsf(x.at[j]));
    store_codes(out + i, x, scale, n - i);
  }
  largest = block_max(largest);
  if (threadIdx.x == 0) amax[blockIdx.x] = largest;
}

/// total = max(total, amax (blocks)). One block.
__global__ void join_amax(float* total, const float* amax, int64_t blocks) {
  float largest = 0;
  for (int64_t i = threadIdx.x; i < blocks; i += kThreads) largest = Max{}(largest, amax[i]);
  largest = block_max(largest);
  if (threadIdx.x == 0) *total = Max{}(*total, largest);
}

/// The host reads the scale once for all threads, when it queues the kernel. No kernel writes the
/// scale, and the host changes it only between steps.
template <int W, class Fp8, class From>
void cast_to_fp8(const Ctx& ctx, const Tensor& out, const Tensor& inp) {
  constexpr int64_t kBlocks = 1024;  // more than a GPU runs at once
  const int64_t n = inp.size(), blocks = std::min(grid_over<W>(n).x, kBlocks);
  Scratch scratch(ctx);
  auto* amax = scratch.take<float>(blocks);
  launch(ctx, convert_to_fp8<W, Fp8, From>, {.x = blocks}, kThreads, 0, device_data<Fp8>(out), amax,
         device_data<From>(inp), n, out.fp8->scale);
  launch(ctx, join_amax, {.x = 1}, kThreads, 0, &out.fp8->amax, amax, blocks);
}

template <int W, class From>
void cast_from(const Ctx& ctx, const Tensor& out, const Tensor& inp) {
  switch (out.dtype) {
    case Dtype::E4M3: return cast_to_fp8<W, E4m3, From>(ctx, out, inp);
    case Dtype::E5M2: return cast_to_fp8<W, E5m2, From>(ctx, out, inp);
    default:
      dispatch(out.dtype, [&]<class To>(Type<To>) {
        launch(ctx, convert<W, To, From>, grid_over<W>(inp.size()), kThreads, 0,
               device_data<To>(out), device_data<From>(inp), inp.size());
      });
  }
}

}  // namespace

void cast(const Ctx& ctx, Tensor out, Tensor inp) {
  check_cast(out, inp);
  dispatch(inp.dtype, [&]<class From>(Type<From>) {
    dispatch_width<kNeighbors>({out, inp},
                               [&]<int W>(Width<W>) { cast_from<W, From>(ctx, out, inp); });
  });
}

}  // namespace ladder::LADDER_CUDA
