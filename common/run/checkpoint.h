// Checkpoints: a directory that at any moment holds one whole checkpoint, or none.
//
//   checkpoint.json             the manifest: files, checksums, sizes of the model, state
//   model-<step>.safetensors    weights, under the names and layouts of Hugging Face's GPT-2
//   optimizer-<step>.safetensors
//
// Every file is written under a new name, and the manifest last: it is what makes a checkpoint.
// Files of the previous one go only after that. So a save that is interrupted anywhere leaves the
// previous checkpoint whole, and a file that no manifest names is never touched.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "common/model/layout.h"
#include "common/run/weights.h"

namespace ladder {

/// A part of the optimizer's state.
struct NamedTensor {
  std::string name;  ///< "adamw.m"
  Tensor tensor;
};

/// Tries to write in `dir`, or where it would be created, so that a run does not find out at its
/// end. Leaves nothing: a run that is refused after this creates no file and no directory.
/// @throws UserError if it cannot be written, or holds a checkpoint.json that is not ours
void check_save_dir(const std::string& dir);

/// @param params F32 (layout.size())
/// @param state what the next step depends on besides tensors; "step" is how many are done
/// @throws UserError if the disk refuses; the previous checkpoint is whole then
void save_checkpoint(const Ctx& ctx, const std::string& dir, const GptConfig& config,
                     const ParamLayout& layout, Tensor params, std::span<const NamedTensor> optim,
                     const nlohmann::json& state);

/// Reads what save_checkpoint wrote, and returns its state. A path without our manifest goes to
/// load_weights (common/run/weights.h), with state {"step": 0}; `optim` is left alone then.
/// @param params F32 (layout.size()), written whole: padding becomes zero
/// @throws UserError if anything is missing, damaged or of another model or optimizer; no tensor
///         has been modified then
nlohmann::json load_checkpoint(const Ctx& ctx, const std::string& path, const GptConfig& config,
                               const ParamLayout& layout, Tensor params,
                               std::span<const NamedTensor> optim);

}  // namespace ladder
