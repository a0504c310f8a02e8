// Weights as a file under the names and layouts of the Hugging Face GPT-2 model.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/model/layout.h"
#include "common/run/safetensors.h"
#include "kernels/context.h"

namespace ladder {

/// @param params F32 (layout.size())
FileSum write_weights(const Ctx& ctx, const std::string& path, const GptConfig& config,
                      const ParamLayout& layout, Tensor params);

/// The bytes of each weight in a file, in the order of layout.specs().
using FoundWeights = std::vector<std::span<const std::byte>>;

/// Names may lack "transformer."; without lm_head.weight the head is the embedding.
/// @throws UserError if a weight is missing, of another shape, or not of this model
FoundWeights find_weights(const SafetensorsReader& file, const ParamLayout& layout);

/// params = found. Padding becomes zero.
void copy_weights(const Ctx& ctx, Tensor params, const FoundWeights& found, const GptConfig& config,
                  const ParamLayout& layout);

/// All of it: from a `model.safetensors`, or from the directory that holds one.
/// @throws UserError as find_weights; params is not modified then
void load_weights(const Ctx& ctx, const std::string& path, const GptConfig& config,
                  const ParamLayout& layout, Tensor params);

}  // namespace ladder
