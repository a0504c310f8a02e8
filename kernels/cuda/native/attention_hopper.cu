// Attention for Hopper: the kernels of all GPUs with the engine Wgmma. Compiled for sm_90a alone.
#include "hopper.h"
#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/attention_forward.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/native/attention_wgmma.h"

namespace ladder::LADDER_CUDA {
namespace {

/// 128 queries a block, 128 keys a stage, 64 at a time: 16 warps of 128 registers on an SM.
using Forward = Wgmma<8, 128, 64>;
/// 64 owned rows a block, 128 partners a stage, 64 at a time: 8 warps on an SM.
using Backward = Wgmma<4, 128, 64>;

}  // namespace

const Hopper* hopper_for(const Ctx& ctx, Dtype dtype, int64_t HS) {
  static constexpr Hopper kHopper{.attention_forward = attend_forward<Forward>,
                                  .attention_piece_forward = attend_piece_forward<Forward>,
                                  .attention_backward = attend_backward<Backward>,
                                  .attention_piece_backward = attend_piece_backward<Backward>};
  const bool takes = dtype == Dtype::BF16 && HS == 64 && device_of(ctx).capability() == 90;
  return takes ? &kHopper : nullptr;
}

}  // namespace ladder::LADDER_CUDA
