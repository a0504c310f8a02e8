// Checkpoints: everything that a run needs to go on. All its ranks write and read them together.
// common/save/directory.h says where the files are, and why there is a whole checkpoint at any
// moment.
//
// The files do not depend on how a run is spread over ranks.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/hf/weights.h"
#include "common/model/layout.h"
#include "common/save/directory.h"

namespace ladder {

/// One tensor of the optimizer's state.
struct NamedTensor {
  std::string name;  ///< "m", "v", "velocity"
  Tensor tensor;
};

/// What the next step depends on beside tensors: one object of the program.
struct NamedState {
  std::string name;  ///< "loss_scale"
  std::function<nlohmann::json()> get;
  /// May throw nlohmann::json::exception, or UserError.
  std::function<void(const nlohmann::json&)> set;
  /// Whether a checkpoint without this state is refused. If not, the object stays as it is, and
  /// stderr says so. This happens when a branch goes on from a checkpoint of the trunk, which does
  /// not know the state.
  bool needed = false;
};

/// The state of an object that has state() and set_state(). The object may have needs_state().
template <class T>
NamedState named_state(std::string name, T& object) {
  NamedState named{.name = std::move(name),
                   .get = [&] { return nlohmann::json(object.state()); },
                   .set = [&](const nlohmann::json& state) { object.set_state(state); }};
  if constexpr (requires { object.needs_state(); }) named.needed = object.needs_state();
  return named;
}

/// Everything that a checkpoint holds.
struct TrainingState {
  const GptConfig& gpt;
  const ParamLayout& layout;  ///< of the optimizer's tensors: a shard, or the whole model
  Flat params;                ///< F32
  std::vector<NamedTensor> optim;
  std::vector<NamedState> others = {};
  /// Files of the tokenizer, name -> text, and the token that ends a text, for config.json.
  std::map<std::string, std::string> tokenizer = {};
  std::optional<int64_t> end_of_text = {};
  Comm* comm = nullptr;  ///< the ranks that save and load together; null: only this rank
};

/// Rank 0 writes. All ranks call it.
/// @param dir on rank 0; null on the others
/// @param steps how many steps are done
/// @return on rank 0, why nothing was saved: "transformer.wte.weight holds a NaN or an infinity";
/// empty if it was saved. Such a checkpoint is not written, because the previous one is worth more.
/// Other ranks get an empty text
/// @throws UserError if the disk refuses; the previous checkpoint is then whole
std::string save_checkpoint(const Ctx& ctx, SaveDirectory* dir, const TrainingState& state,
                            int64_t steps);

/// Reads what save_checkpoint wrote. Every rank reads the parts that it holds. If the checkpoint
/// has a state that `state` does not name, because another chapter wrote it, that state is skipped,
/// and stderr says so. A path without a checkpoint goes to load_weights (common/hf/weights.h); the
/// rest of `state` then stays as it is. Padding becomes zero.
/// @return how many steps are done
/// @throws UserError if anything is missing, damaged, or of another model or optimizer; no tensor
/// is then changed
int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state);

}  // namespace ladder
