// A model of a few numbers, all different, for tests of saving and loading.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/comm/comm.h"
#include "common/model/layout.h"
#include "common/save/checkpoint.h"
#include "kernels/arena.h"

namespace ladder {

/// Two layers, two heads of four channels; a vocabulary of 5, padded to 8.
inline GptConfig small_config() {
  return {.name = "test",
          .layers = 2,
          .heads = 2,
          .channels = 8,
          .seq_len = 3,
          .positions = 4,
          .vocab = 5,
          .padded_vocab = 8};
}

/// A preset with two layers, four heads in two groups, and the same vocabulary.
inline GptConfig small_of(const std::string& name, int64_t channels) {
  GptConfig config = preset(name);
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.channels = channels;
  config.vocab = 5;
  config.padded_vocab = 8;
  return config;
}

/// Saves on all ranks of state.comm, each of which gives the directory of rank 0.
inline std::string save_checkpoint(SaveDirectory& dir, const TrainingState& state, int64_t steps) {
  const bool first = !state.comm || state.comm->rank() == 0;
  return save_checkpoint(Ctx{}, first ? &dir : nullptr, state, steps);
}

struct SmallModel {
  GptConfig config = small_config();
  ParamLayout layout{config};
  Arena arena{};
  Tensor params = arena.zeros(Mem::Param, "params", Dtype::F32, {layout.size()});
  std::vector<NamedTensor> optim = {
      {"code", arena.zeros(Mem::Optim, "code", Dtype::U8, {layout.size()})},
      {"m", arena.zeros(Mem::Optim, "m", Dtype::F32, {layout.size()})},
      {"count", arena.zeros(Mem::Optim, "count", Dtype::I64, {3})}};

  /// Parameters first, first + 1, ...; padding zero. Optimizer states too depend on `first`.
  void fill(float first) {
    for (const ParamSpec& spec : layout.specs()) {
      float* at = params.data<float>() + spec.offset;
      std::iota(at, at + spec.live(), first + static_cast<float>(spec.offset));
    }
    fill_all<uint8_t>(optim[0].tensor, first);
    fill_all<float>(optim[1].tensor, first + 0.5f);
    fill_all<int64_t>(optim[2].tensor, first);
  }
  template <class T>
  static void fill_all(Tensor tensor, float first) {
    std::iota(tensor.data<T>(), tensor.data<T>() + tensor.size(), static_cast<T>(first));
  }

  /// All tensors, bit for bit.
  std::string bytes() const {
    std::string all = bytes_of(params);
    for (const NamedTensor& part : optim) all += bytes_of(part.tensor);
    return all;
  }
  static std::string bytes_of(Tensor tensor) {
    return {static_cast<const char*>(tensor.ptr), static_cast<size_t>(tensor.bytes())};
  }

  Tensor tensor(const std::string& name) const { return layout.tensor(params, layout.spec(name)); }

  TrainingState state() const { return {.layout = layout, .params = params, .optim = optim}; }
  void save(const std::string& dir, int64_t step, int64_t keep = 1) const {
    SaveDirectory home(dir, keep);
    const std::string why_not = save_checkpoint(home, state(), step);
    CHECK(why_not.empty(), "{}", why_not);
  }
  int64_t load(const std::string& dir) const { return load_checkpoint(Ctx{}, dir, state()); }
};

}  // namespace ladder
