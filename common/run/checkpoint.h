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

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/model/layout.h"
#include "common/run/weights.h"

namespace ladder {

/// A part of the optimizer's state.
struct NamedTensor {
  std::string name;  ///< "m", "v", "velocity"
  Tensor tensor;
};

/// What the next step depends on beside tensors: one object of the program's.
struct NamedState {
  std::string name;  ///< "spike_guard"
  std::function<nlohmann::json()> get;
  /// May throw nlohmann::json::exception, or UserError.
  std::function<void(const nlohmann::json&)> set;
};

/// The state of an object that has state() and set_state().
template <class T>
NamedState named_state(std::string name, T& object) {
  return {.name = std::move(name),
          .get = [&] { return nlohmann::json(object.state()); },
          .set = [&](const nlohmann::json& state) { object.set_state(state); }};
}

/// All that a checkpoint holds. Files do not depend on how it is spread over ranks.
struct TrainingState {
  const GptConfig& gpt;
  const ParamLayout& layout;  ///< of the optimizer's tensors: a shard, or the whole model
  Tensor params;              ///< F32 (layout.size()), or a shard's (layout.whole_size())
  std::vector<NamedTensor> optim;
  std::vector<NamedState> others = {};
  Comm* comm = nullptr;  ///< whose ranks save and load together; null: this rank is alone
};

/// Tries to write in `dir`, which it creates for that moment, so that a run does not find out at
/// its end. Leaves nothing: a run that is refused after this creates no file and no directory.
/// @throws UserError if it cannot be written, or holds a checkpoint.json that is not ours
void check_save_dir(const std::string& dir);

/// Rank 0 writes; all ranks call it.
/// @param steps that are done
/// @throws UserError if the disk refuses; the previous checkpoint is whole then
void save_checkpoint(const Ctx& ctx, const std::string& dir, const TrainingState& state,
                     int64_t steps);

/// Reads what save_checkpoint wrote; every rank reads what it holds. A path without our manifest
/// goes to load_weights (common/run/weights.h): the rest of `state` is left alone then.
/// Padding becomes zero.
/// @return steps that are done
/// @throws UserError if anything is missing, damaged or of another model or optimizer; no tensor
///         has been modified then
int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state);

}  // namespace ladder
