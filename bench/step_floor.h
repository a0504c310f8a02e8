// How fast a training step of GPT-2 124M could be on this machine, at most.
#pragma once

#include "bench/ceilings.h"

namespace ladder::bench {

/// Seconds of the operations of one step (chapter 04, AdamW, FP32) of B sequences of T tokens, each
/// by its roofline, one after the other. Arithmetic is held to the measured product (`gemm`), not
/// to bare multiply-adds: what is asked is how well the parts are put together. Every pass over
/// activations is charged to memory, also where they would fit a cache.
double step_floor_seconds(const Ceilings& ceilings, int64_t B, int64_t T);

}  // namespace ladder::bench
