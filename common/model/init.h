// Initial weights, and the hash of the weights that a trace shows.
#pragma once

#include <cstdint>

#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// Initial weights of GPT-2: matrices and embeddings N(0, 0.02^2), projections that end a branch
/// N(0, 0.02^2 / (2 L)), gains 1, biases 0, padding 0. An element's value depends only on seed,
/// tensor name and index in the tensor. Of adapters (chapter 36) A is uniform in +-1 / sqrt(K), and
/// B is 0.
/// @param flat F32
void init_params(const Ctx& ctx, const Flat& flat, const ParamLayout& layout, uint64_t seed);

/// A 64-bit hash of these weights, bit by bit. It is a sum modulo 2^64 over elements, each a mix of
/// tensor name, index and bits. So shards can add their sums.
/// @param flat F32
uint64_t param_hash(const Ctx& ctx, const Flat& flat, const ParamLayout& layout);
/// The hash of all weights.
/// @param others a Comm of the ranks that hold the other shards, all of which call this; null:
/// there are none. A template, because common/model includes nothing of common/comm
template <class Group>
uint64_t param_hash(const Ctx& ctx, const Flat& flat, const ParamLayout& layout, Group* others) {
  uint64_t sum = param_hash(ctx, flat, layout);
  if (others) others->all_reduce(Tensor{.ptr = &sum, .dtype = Dtype::I64, .shape = {1}});
  return sum;
}

}  // namespace ladder
