// The stand-in for a GPU is no Hopper (kernels/cuda/native/hopper.h): it has no version for one.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ladder::LADDER_CUDA {

struct Hopper {
  static constexpr auto none = [](auto&&...) {};
  static constexpr auto attention_forward = none, attention_piece_forward = none,
                        attention_backward = none, attention_piece_backward = none;
};

constexpr const Hopper* hopper_for(const Ctx&, Dtype, int64_t) { return nullptr; }

}  // namespace ladder::LADDER_CUDA
