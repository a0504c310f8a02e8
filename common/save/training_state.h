// TrainingState: everything that a run needs to go on, and that a checkpoint holds.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/model/layout.h"

namespace ladder {

class Comm;

/// One tensor of the optimizer's state.
struct NamedTensor {
  std::string name;  ///< "m", "v", "velocity"
  Tensor tensor;
};

/// A state of one object that is no tensor, and that the next step depends on.
struct NamedState {
  std::string name;  ///< "loss_scale"
  std::function<nlohmann::json()> get;
  /// May throw nlohmann::json::exception, or UserError.
  std::function<void(const nlohmann::json&)> set;
  /// Whether a checkpoint without this state is refused. If false, the object stays as it is, and
  /// stderr says so: a branch may go on from a checkpoint of the trunk, which lacks the state.
  bool needed = false;
};

/// The state of an object that has state() and set_state(). If the object has needs_state(), that
/// says whether the state is needed.
template <class T>
NamedState named_state(std::string name, T& object) {
  NamedState named{.name = std::move(name),
                   .get = [&] { return nlohmann::json(object.state()); },
                   .set = [&](const nlohmann::json& state) { object.set_state(state); }};
  if constexpr (requires { object.needs_state(); }) named.needed = object.needs_state();
  return named;
}

struct TrainingState {
  const ParamLayout& layout;  ///< of `params` and the optimizer's tensors: a shard or all of them
  Flat params;                ///< F32
  std::vector<NamedTensor> optim;
  std::vector<NamedState> others = {};
  /// Further files, name -> text: those of the tokenizer, and a chapter's own.
  std::map<std::string, std::string> texts = {};
  std::optional<int64_t> end_of_text = {};  ///< the token that ends a text, for config.json
  Comm* comm = nullptr;  ///< the ranks that save and load together; null: only this rank
};

}  // namespace ladder
