// Weights as a file under the names and layouts of the Hugging Face GPT-2 model.
#pragma once

#include <map>
#include <span>
#include <string>

#include "common/comm/comm.h"
#include "common/model/layout.h"
#include "common/run/safetensors.h"
#include "kernels/context.h"

namespace ladder {

/// The file appears on rank 0 of `comm` and has the same bytes whatever the shards; the others get
/// an empty sum.
/// @param params F32 (layout.size()), or a shard's (layout.whole_size())
/// @param comm whose ranks hold the shards, and all call this; null: this rank is alone
FileSum write_weights(const Ctx& ctx, Comm* comm, const std::string& path, const GptConfig& config,
                      const ParamLayout& layout, Tensor params);

/// The bytes of each weight in a file, by the name of its ParamSpec.
using FoundWeights = std::map<std::string, std::span<const std::byte>>;

/// Names may lack "transformer."; without lm_head.weight the head is the embedding.
/// @throws UserError if a weight is missing, of another shape, or not of this model
FoundWeights find_weights(const SafetensorsReader& file, const GptConfig& config);

/// params = found. Padding becomes zero.
void copy_weights(const Ctx& ctx, Tensor params, const FoundWeights& found, const GptConfig& config,
                  const ParamLayout& layout);

/// All of it: from a `model.safetensors`, or from the directory that holds one.
/// @throws UserError as find_weights; params is not modified then
void load_weights(const Ctx& ctx, const std::string& path, const GptConfig& config,
                  const ParamLayout& layout, Tensor params);

}  // namespace ladder
