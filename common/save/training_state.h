// TrainingState: everything that a run needs to go on.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/comm/comm.h"
#include "common/model/layout.h"

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

}  // namespace ladder
