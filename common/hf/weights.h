// Weights in a file, with the names and layouts of a Hugging Face model: GPT-2 or LLaMA.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/hf/safetensors.h"
#include "common/model/layout.h"
#include "kernels/context.h"

namespace ladder {

/// A file, and what is known of it before it is written.
struct PlannedFile {
  std::string name;
  SafetensorsPlan plan;
};

/// The files of all weights, in order. Whole tensors follow each other in a file until the next one
/// would make it larger than `most` bytes of data; a larger tensor has a file of its own.
std::vector<PlannedFile> plan_weights(const ParamLayout& layout, int64_t most);
/// What kIndexFile says of several such files.
std::string weights_index(std::span<const PlannedFile> files);

/// Neighboring numbers, flat in host memory, and where their first byte lies in which file.
using UseRun = std::function<void(size_t file, int64_t at, Tensor run)>;

/// Calls use() for the runs of one parameter, or of the part of it that is here.
/// @param part F32, flat, in host memory: ParamLayout::tensor(). If the file has the parameter
/// transposed, its elements `turned` of the tensor in the file
/// @param whole the layout of the whole model
void for_weight_runs(std::span<const PlannedFile> files, const ParamSpec& spec, Tensor part,
                     Range turned, const ParamLayout& whole, const UseRun& use);

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
                  const GptConfig& config, const ParamLayout& layout);

/// Does everything, from files of Hugging Face. Their config.json must agree with the model. If
/// there is none, stderr says what is taken on trust.
/// @param speaks whether this rank prints that
/// @throws UserError as find_weights and check_hf_config do; params is then unchanged
void load_weights(const Ctx& ctx, const std::string& path, const GptConfig& config,
                  const ParamLayout& layout, const Flat& params, bool speaks = true);

}  // namespace ladder
