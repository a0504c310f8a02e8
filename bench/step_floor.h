// How fast a training step of GPT-2 124M could be on this machine, at most.
#pragma once

#include "bench/ceilings.h"

namespace ladder::bench {

/// Seconds of the operations of one step (AdamW) of B sequences of T tokens, each by its roofline,
/// one after the other. Arithmetic is held to the measured product (`gemm`; with 16 bits, those of
/// products and attention to `gemm_bf16`), not to bare multiply-adds: what is asked is how well the
/// parts are put together. Every pass over activations is charged to memory, also where they would
/// fit a cache.
/// @param compute F32 as in chapter 04; BF16 as in chapter 05: activations and weights of 16 bits,
///                which are cast from the FP32 weights once a step, gradients of weights of 32
double step_floor_seconds(const Ceilings& ceilings, int64_t B, int64_t T, Dtype compute);

}  // namespace ladder::bench
