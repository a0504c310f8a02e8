// Operations that have a second version for Hopper. Its instructions (sm_90a) run on no other GPU,
// older or newer.
#pragma once

#include "kernels/context.h"
#include "kernels/kernels.h"
#include "kernels/shapes.h"

namespace ladder::LADDER_CUDA {

/// Parameters as in kernels/cuda/attention_forward.h and attention_backward.h.
struct Hopper {
  void (*attention_forward)(const Ctx&, const Extents&, Tensor out, Tensor lse, Tensor qkv);
  void (*attention_piece_forward)(const Ctx&, const Extents&, Tensor o, Tensor m, Tensor l,
                                  Tensor q, Tensor kv, const AttentionPositions&);
  void (*attention_backward)(const Ctx&, const Extents&, Tensor dqkv, Tensor dout, Tensor qkv,
                             Tensor out, Tensor lse);
  void (*attention_piece_backward)(const Ctx&, const Extents&, Tensor dq, Tensor dkv, Tensor dout,
                                   Tensor q, Tensor kv, Tensor out, Tensor lse,
                                   const AttentionPositions&);
};

/// Null where the device is no Hopper, or has no version for heads of HS channels of `dtype`.
const Hopper* hopper_for(const Ctx& ctx, Dtype dtype, int64_t HS);

}  // namespace ladder::LADDER_CUDA
