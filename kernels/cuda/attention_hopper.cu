// Attention for Hopper: the kernels of all GPUs with the engine Wgmma. nvcc compiles it for sm_90a
// alone.
#include "kernels/cuda/attention_backward.h"
#include "kernels/cuda/attention_engines.h"
#include "kernels/cuda/attention_forward.h"
#include "kernels/cuda/attention_wgmma.h"
#include "kernels/cuda/hopper.h"

namespace ladder::LADDER_CUDA {
namespace {

/// 128 queries a block, 128 keys a stage, 64 at a time. With 64 channels an SM holds 16 warps of
/// 128 registers, with 128 channels 8 warps of 255.
template <int kHS>
using Forward = Wgmma<kHS, 8, 128>;
/// 64 owned rows a block, 64 partners at a time: 8 warps on an SM. With 128 channels a stage has 64
/// partners, so that two blocks have room.
template <int kHS>
using Backward = Wgmma<kHS, 4, kHS == 64 ? 128 : 64>;

template <int kHS>
constexpr Hopper kHopper{.attention_forward = attend_forward<Forward<kHS>>,
                         .attention_piece_forward = attend_piece_forward<Forward<kHS>>,
                         .attention_backward = attend_backward<Backward<kHS>>,
                         .attention_piece_backward = attend_piece_backward<Backward<kHS>>};

}  // namespace

const Hopper* hopper_for(const Ctx& ctx, Dtype dtype, int64_t HS) {
  const CudaDevice& device = device_of(ctx);
  if (dtype != Dtype::BF16 || !device.hopper()) return nullptr;
  if (HS == 64) return &kHopper<64>;
  const bool fits = device.max_shared_bytes() >= kMuchShared;
  return HS == 128 && fits ? &kHopper<128> : nullptr;
}

}  // namespace ladder::LADDER_CUDA
