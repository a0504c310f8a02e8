// A model of a few numbers, every one different, for tests of what is saved and loaded.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

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

  TrainingState state() const {
    return {.gpt = config, .layout = layout, .params = params, .optim = optim};
  }
  void save(const std::string& dir, int64_t step, SaveHow how = {}, int64_t keep = 1) const {
    SaveDirectory home(dir, keep);
    const std::string why_not = save_checkpoint(Ctx{}, home, state(), step, how);
    CHECK(why_not.empty(), "{}", why_not);
  }
  int64_t load(const std::string& dir) const { return load_checkpoint(Ctx{}, dir, state()); }
};

}  // namespace ladder
