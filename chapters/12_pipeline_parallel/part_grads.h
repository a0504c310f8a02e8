// Gradients of activations in one model chunk: as few as possible, or all that weight
// gradients will read.
//
// If both gradients of a block are computed together, two buffers of the stream and one set of the
// others serve all blocks. If weight gradients wait (zb-h1), everything that they read must wait
// with them. Beside activations this is, per token, 11 C numbers of each block, and C of the last
// stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/model/activations.h"
#include "common/model/config.h"
#include "common/model/parts.h"
#include "kernels/arena.h"

namespace ladder {

/// Gradients of activations of one block, which its weight gradients read. Where ranks split each
/// sequence (chapter 13), T in these shapes is a rank's part of it.
struct BlockGrads {
  Tensor mid;           ///< (B,T,C), of the stream between both branches
  Tensor read1, read2;  ///< (B,T,C), of the inputs of attn and mlp
  AttnGrads attn;
  MlpGrads mlp;
};

/// Gradients of activations of one model chunk.
struct ChunkGrads {
  std::vector<Tensor> streams;  ///< (B,T,C), of each block's input, and of the last output
  std::vector<BlockGrads> blocks;
  Tensor norm;  ///< (B,T,C), of the input of a norm
  Tensor head;  ///< (B,T,C), of the input of the head

  /// The gradient of block l's input. l = L: of the last block's output. There are as many buffers
  /// as alloc_chunk_grads() has made: one for each, or two that blocks take in turn.
  const Tensor& stream(size_t l) const { return streams[l % streams.size()]; }
  const BlockGrads& block(size_t l) const { return blocks[l % blocks.size()]; }

  /// The same buffers for a batch of n sequences.
  ChunkGrads first(int64_t n) const {
    ChunkGrads part{
        .streams{}, .blocks{}, .norm = norm.first(n), .head = head ? head.first(n) : Tensor{}};
    for (const Tensor& x : streams) part.streams.push_back(x.first(n));
    for (const BlockGrads& b : blocks)
      part.blocks.push_back({.mid = b.mid.first(n),
                             .read1 = b.read1.first(n),
                             .read2 = b.read2.first(n),
                             .attn{b.attn.dqkv.first(n), b.attn.datt.first(n)},
                             .mlp = b.mlp.first(n)});
    return part;
  }
};

/// Workspace for the gradients of activations of `waiting` micro-batches, whose weight gradients
/// wait.
/// @param part    the model with the layers of the chunk alone
/// @param waiting 0: none waits, and one set serves all blocks and micro-batches
inline std::vector<ChunkGrads> alloc_chunk_grads(Arena& arena, const GptConfig& part, int64_t batch,
                                                 const ActivationPlan& plan, int64_t waiting) {
  const int64_t C = part.channels, T = part.seq_len, local_T = plan.local_tokens(T);
  const LocalWidths own(part, plan.tp);
  const auto alloc = [&](const char* name, int64_t tokens, int64_t width) {
    return arena.alloc(Mem::Workspace, name, plan.dtype, {batch, tokens, width});
  };
  const Tensor norm = alloc("dnorm", local_T, C), datt = alloc("datt", T, own.att);
  const Tensor dact = own.dact > 0 ? alloc("dact", T, own.dact) : Tensor{};
  const Tensor head = plan.head ? alloc("dhead", local_T, C) : Tensor{};
  std::vector<ChunkGrads> all;
  for (int64_t i = 0; i < std::max<int64_t>(1, waiting); ++i) {
    ChunkGrads grads{.streams{}, .blocks{}, .norm = norm, .head = head};
    for (int64_t l = 0; l < (waiting > 0 ? part.layers + 1 : 2); ++l)
      grads.streams.push_back(alloc("dstream", local_T, C));
    for (int64_t l = 0; l < (waiting > 0 ? part.layers : 1); ++l)
      grads.blocks.push_back({.mid = alloc("dmid", local_T, C),
                              .read1 = alloc("dread1", local_T, C),
                              .read2 = alloc("dread2", local_T, C),
                              .attn{.dqkv = alloc("dqkv", T, own.qkv), .datt = datt},
                              .mlp = mlp_grads(part, alloc("dfc", T, own.fc), dact)});
    all.push_back(grads);
  }
  return all;
}

/// Bytes of Workspace: those above, and what alloc_slots() counts as Workspace.
inline int64_t chunk_grad_bytes(const GptConfig& part, int64_t batch, const ActivationPlan& plan,
                                int64_t waiting) {
  const int64_t L = part.layers, C = part.channels;
  const LocalWidths own(part, plan.tp);
  const int64_t streams = waiting > 0 ? waiting * (L + 1) : 2;
  const int64_t blocks = waiting > 0 ? waiting * L : 1;
  // What tensor ranks (chapter 13) have whole: the streams, three per block, norm, product, head.
  const int64_t between = (streams + 3 * blocks + 2 + (plan.head ? 1 : 0)) * C;
  // What they cut: dqkv and dfc of each block, and one datt and dact.
  const int64_t inside = (own.qkv + own.fc) * blocks + own.att + own.dact;
  const int64_t T = part.seq_len;
  return size_of(plan.dtype) * batch * (plan.local_tokens(T) * between + T * inside) +
         angle_bytes(part);
}

}  // namespace ladder
