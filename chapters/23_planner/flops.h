// Operations per token, by the conventions that published numbers use.
//
//   model FLOPs     6 (L M + C V) + 12 L C T      forward and backward of all products. M: elements
//                                                 of a block's matrices, 12 C^2 in GPT-2
//   hardware FLOPs  also what is computed again: of a forward 2 L M + 4 L C T
//
// 12 L C T is attention with all T keys for each query (PaLM, arXiv 2204.02311, appendix B). A
// causal kernel does half of it. So with long sequences MFU is higher than the computed products
// justify. With M = 12 C^2 the first line is 72 L C^2 (1 + T / 6C + V / 12 L C) of arXiv
// 2205.05198.
//
//   MFU = model FLOPs x tokens a second / (devices x peak)      HFU: with hardware FLOPs
#pragma once

#include <cstdint>

#include "common/model/config.h"

namespace ladder::planner {

/// Operations of one token in forward: of the matrices of all blocks, of the head, of scores and
/// values.
struct ForwardFlops {
  double blocks, head, attention;
};

inline ForwardFlops forward_flops(const GptConfig& gpt) {
  const auto L = static_cast<double>(gpt.layers), C = static_cast<double>(gpt.channels);
  return {.blocks = 2 * L * static_cast<double>(gpt.block_matrices()),
          .head = 2 * C * static_cast<double>(gpt.vocab),
          .attention = 4 * L * C * static_cast<double>(gpt.seq_len)};
}

/// Backward has two products for each product of forward.
inline double model_flops(const GptConfig& gpt) {
  const auto [blocks, head, attention] = forward_flops(gpt);
  return 3 * (blocks + head + attention);
}

/// With half of attention, as a causal kernel computes.
inline double causal_flops(const GptConfig& gpt) {
  return model_flops(gpt) - 1.5 * forward_flops(gpt).attention;
}

/// @param blocks_again,attention_again the shares of all blocks whose matrices, or whose attention,
/// are computed again: 0 to 1
inline double hardware_flops(const GptConfig& gpt, double blocks_again, double attention_again) {
  const auto [blocks, head, attention] = forward_flops(gpt);
  return model_flops(gpt) + blocks_again * blocks + attention_again * attention;
}

/// MFU or HFU, depending on which FLOPs are given.
inline double utilisation(double flops_of_token, double tokens_per_second, int64_t devices,
                          double peak) {
  return flops_of_token * tokens_per_second / (static_cast<double>(devices) * peak);
}

}  // namespace ladder::planner
