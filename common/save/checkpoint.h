// Checkpoints: all that a run needs to go on, written and read by all its ranks together. Where the
// files lie, and why there is a whole checkpoint at any moment: common/save/directory.h.
//
// Files do not depend on how a run is spread over ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/hf/weights.h"
#include "common/model/layout.h"
#include "common/save/directory.h"

namespace ladder {

/// A part of the optimizer's state.
struct NamedTensor {
  std::string name;  ///< "m", "v", "velocity"
  Tensor tensor;
};

/// What the next step depends on beside tensors: one object of the program's.
struct NamedState {
  std::string name;  ///< "loss_scale"
  std::function<nlohmann::json()> get;
  /// May throw nlohmann::json::exception, or UserError.
  std::function<void(const nlohmann::json&)> set;
  /// Whether a checkpoint without it is refused. One that is not needed stays as it is, which
  /// stderr is told: the chapter that wrote the checkpoint does not know it, as where a branch goes
  /// on from the trunk.
  bool needed = false;
};

/// The state of an object that has state() and set_state(), and may have needs_state().
template <class T>
NamedState named_state(std::string name, T& object) {
  NamedState named{.name = std::move(name),
                   .get = [&] { return nlohmann::json(object.state()); },
                   .set = [&](const nlohmann::json& state) { object.set_state(state); }};
  if constexpr (requires { object.needs_state(); }) named.needed = object.needs_state();
  return named;
}

/// All that a checkpoint holds.
struct TrainingState {
  const GptConfig& gpt;
  const ParamLayout& layout;  ///< of the optimizer's tensors: a shard, or the whole model
  Flat params;                ///< F32
  std::vector<NamedTensor> optim;
  std::vector<NamedState> others = {};
  Comm* comm = nullptr;  ///< whose ranks save and load together; null: this rank is alone
};

/// Rank 0 writes; all ranks call it.
/// @param dir rank 0's; null on the others
/// @param steps that are done
/// @return on rank 0, why nothing was saved: "transformer.wte.weight holds a NaN or an infinity";
///         empty: it was saved. The previous checkpoint is worth more than that one. Other ranks
///         learn nothing, and get an empty text
/// @throws UserError if the disk refuses; the previous checkpoint is whole then
std::string save_checkpoint(const Ctx& ctx, SaveDirectory* dir, const TrainingState& state,
                            int64_t steps);

/// Reads what save_checkpoint wrote; every rank reads what it holds. A state that `state` does not
/// name is left aside, which stderr is told: another chapter wrote the checkpoint. A path without a
/// checkpoint goes to load_weights (common/hf/weights.h): the rest of `state` is left alone then.
/// Padding becomes zero.
/// @return steps that are done
/// @throws UserError if anything is missing, damaged or of another model or optimizer; no tensor
///         has been modified then
int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state);

}  // namespace ladder
