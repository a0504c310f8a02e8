// Weights in a file, with the names and layouts of a Hugging Face model: GPT-2 or LLaMA.
#pragma once

#include <map>
#include <span>
#include <string>

#include "common/hf/safetensors.h"
#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// The file of all weights.
SafetensorsPlan plan_weights(const ParamLayout& layout);
/// Appends the weights of section s. Sections come in order.
/// @param writer of plan_weights()
/// @param whole the layout of the whole model
/// @param section F32, in host memory
void append_weights(SafetensorsWriter& writer, const ParamLayout& whole, int64_t s, Tensor section);

/// A weight in a file.
struct FoundWeight {
  const SafetensorsReader* file;
  const TensorEntry* entry;
};
/// Weights by the names that hf_tensors() gives.
using FoundWeights = std::map<std::string, FoundWeight>;

/// What is known of a model's head in addition to its tensors.
enum class Head : uint8_t {
  Unknown,  ///< if lm_head.weight is missing, the head is the embedding
  Own,      ///< lm_head.weight must be there
  Tied,     ///< it is the embedding; an lm_head.weight must be equal to it
};

/// Finds the weights in one file or in several, which must outlive the result. Names may lack
/// "transformer." or "model.".
/// @throws UserError if a weight is missing, has another shape or dtype, or is not of this model
FoundWeights find_weights(std::span<const SafetensorsReader> files, const GptConfig& config,
                          Head head = Head::Unknown);

/// params = found. F32, F16 and BF16 give the same numbers here, because FP32 holds every number of
/// the narrow formats. Padding becomes zero.
/// @throws UserError if a file cannot be read
void copy_weights(const Ctx& ctx, const Flat& params, const FoundWeights& found,
                  const ParamLayout& layout);

/// params = the weights in files of Hugging Face. Their config.json must agree with the model. If
/// there is none, stderr says what is taken on trust.
/// @param path a directory, an index of files, or a file of weights
/// @param speaks whether this rank prints that
/// @throws UserError as find_weights and check_hf_config do; params is then unchanged
void load_weights(const Ctx& ctx, const std::string& path, const ParamLayout& layout,
                  const Flat& params, bool speaks = true);

}  // namespace ladder
