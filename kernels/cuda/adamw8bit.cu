// AdamW whose moments rest as 8-bit codes: a warp widens a block of them, moves it and narrows it.
#include <algorithm>

#include "kernels/cuda/adam_step.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/vectors.h"
#include "kernels/cuda/warp.h"
#include "kernels/quantize.h"
#include "kernels/shapes.h"
#include "launch.h"

namespace ladder::LADDER_CUDA {
namespace {

/// Elements of a block that a lane has: lane, lane + 32.
constexpr int kPerLane = kQuantBlock / kWarp;

/// The tables of kernels/quantize.h, where device code sees them.
__device__ constexpr QuantCode kCodes[2] = {make_quant_code(true), make_quant_code(false)};

/// Copies both tables to shared memory, where lanes that read different entries wait least.
__device__ void copy_codes(QuantCode (&codes)[2]) {
  constexpr int kWords = 2 * sizeof(QuantCode) / sizeof(uint32_t);
  for (int i = static_cast<int>(threadIdx.x); i < kWords; i += kThreads)
    reinterpret_cast<uint32_t*>(codes)[i] = reinterpret_cast<const uint32_t*>(kCodes)[i];
  __syncthreads();
}

/// quantize_block() of `count` elements by one warp; x is 0 behind them. NaN has code 0 and no part
/// in the scale.
__device__ void narrow_block(const QuantCode& code, uint8_t* codes, float* scale,
                             const float (&x)[kPerLane], int64_t count) {
  float largest = 0;
  for (int i = 0; i < kPerLane; ++i) {
    const float magnitude = fabsf(x[i]);
    largest = largest < magnitude ? magnitude : largest;
  }
  largest = warp_max(largest);
  for (int i = 0; i < kPerLane; ++i) {
    const int64_t at = lane_index() + i * kWarp;
    if (at < count) codes[at] = largest == 0 ? 0 : quantize(code, x[i] / largest);
  }
  if (lane_index() == 0) *scale = largest;
}

/// The operands of one call.
struct Operands {
  float* param;                ///< (n)
  uint8_t *m_codes, *v_codes;  ///< (n)
  float *m_scales, *v_scales;  ///< one a block of kQuantBlock
  const float* grad;           ///< (n)
  int64_t n;
};

/// Each warp takes every so many-th block.
__global__ void update(Operands all, AdamStep step) {
  __shared__ QuantCode codes[2];
  copy_codes(codes);
  const int64_t blocks = (all.n + kQuantBlock - 1) / kQuantBlock;
  for (int64_t block = thread_index() / kWarp; block < blocks; block += thread_count() / kWarp) {
    const int64_t begin = block * kQuantBlock,
                  count = std::min(int64_t{kQuantBlock}, all.n - begin);
    const float m_scale = all.m_scales[block], v_scale = all.v_scales[block];
    float m[kPerLane] = {}, v[kPerLane] = {};
    for (int i = 0; i < kPerLane; ++i) {
      const int64_t at = begin + lane_index() + i * kWarp;
      if (at >= all.n) break;
      m[i] = codes[0].value[all.m_codes[at]] * m_scale;
      v[i] = codes[1].value[all.v_codes[at]] * v_scale;
      adam_step(all.param[at], m[i], v[i], all.grad[at], step);
    }
    narrow_block(codes[0], all.m_codes + begin, &all.m_scales[block], m, count);
    narrow_block(codes[1], all.v_codes + begin, &all.v_scales[block], v, count);
  }
}

}  // namespace

void adamw8bit_update(const Ctx& ctx, Tensor param, Tensor m_code, Tensor m_scale, Tensor v_code,
                      Tensor v_scale, Tensor grad, const AdamStep& step) {
  constexpr int64_t kBlocks = 2048;  // more than a GPU runs at once; each copies the tables
  const int64_t n = check_adamw8bit_update(param, m_code, m_scale, v_code, v_scale, grad);
  const Operands all{.param = device_data<float>(param),
                     .m_codes = device_data<uint8_t>(m_code),
                     .v_codes = device_data<uint8_t>(v_code),
                     .m_scales = device_data<float>(m_scale),
                     .v_scales = device_data<float>(v_scale),
                     .grad = device_data<float>(grad),
                     .n = n};
  launch(ctx, update, {.x = std::min(grid_over<kPerLane>(n).x, kBlocks)}, kThreads, 0, all, step);
}

}  // namespace ladder::LADDER_CUDA
