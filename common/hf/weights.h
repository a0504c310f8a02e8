// Weights as a file under the names and layouts of a Hugging Face model: GPT-2, or LLaMA.
#pragma once

#include <map>
#include <span>
#include <string>

#include "common/comm/comm.h"
#include "common/hf/safetensors.h"
#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// The file appears on rank 0 of `comm` and has the same bytes whatever the shards; the others get
/// an empty answer.
/// @param params F32
/// @param comm whose ranks hold the shards, and all call this; null: this rank is alone
WrittenFile write_weights(const Ctx& ctx, Comm* comm, const std::string& path,
                          const GptConfig& config, const ParamLayout& layout, const Flat& params);

/// A weight in a file.
struct FoundWeight {
  const SafetensorsReader* file;
  const TensorEntry* entry;
};
/// By the name that hf_tensors() gives it.
using FoundWeights = std::map<std::string, FoundWeight>;

/// What is known of the head of a model beside its tensors.
enum class Head : uint8_t {
  Unknown,  ///< without lm_head.weight the head is the embedding
  Own,      ///< lm_head.weight must be there
  Tied,     ///< it is the embedding; lm_head.weight, where it is there, must be equal
};

/// In one file or several, which must outlive what is found. Names may lack "transformer." or
/// "model.".
/// @throws UserError if a weight is missing, of another shape or dtype, or not of this model
FoundWeights find_weights(std::span<const SafetensorsReader> files, const GptConfig& config,
                          Head head = Head::Unknown);

/// params = found: F32, F16 and BF16 alike, since FP32 holds every number of the narrow ones.
/// Padding becomes zero.
/// @throws UserError if a file cannot be read
void copy_weights(const Ctx& ctx, const Flat& params, const FoundWeights& found,
                  const GptConfig& config, const ParamLayout& layout);

/// All of it, from files of Hugging Face. Their config.json must agree with
/// the model; without one stderr is told what is taken on trust.
/// @param speaks whether this rank tells it
/// @throws UserError as find_weights and check_hf_config; params is not modified then
void load_weights(const Ctx& ctx, const std::string& path, const GptConfig& config,
                  const ParamLayout& layout, const Flat& params, bool speaks = true);

}  // namespace ladder
