// Initial weights, and the hash of weights that the trace shows.
#pragma once

#include <cstdint>

#include "common/comm/comm.h"
#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// Initial weights as GPT-2 has them: matrices and embeddings N(0, 0.02^2), projections that end
/// a residual branch N(0, 0.02^2 / (2 L)), gains 1, biases 0, padding 0. The value of an element
/// depends on seed, tensor name and index in the tensor alone.
/// @param flat F32
void init_params(const Ctx& ctx, const Flat& flat, const ParamLayout& layout,
                 const GptConfig& config, uint64_t seed);

/// 64-bit hash of all weights, bit for bit. A sum modulo 2^64 over elements of a mix of tensor
/// name, index and bits: shards can add their sums.
/// @param flat F32
/// @param others whose ranks hold the other shards; all call this
uint64_t param_hash(const Ctx& ctx, const Flat& flat, const ParamLayout& layout,
                    Comm* others = nullptr);

}  // namespace ladder
