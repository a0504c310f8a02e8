// A small model in files of Hugging Face, for tests of what is read and written there.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/hf/config.h"
#include "common/hf/weights.h"
#include "common/save/file_order.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {

/// Tensors in the order of `entries`.
inline void write_safetensors(const std::string& path, std::vector<SafetensorsPlan::Entry> entries,
                              const std::vector<Tensor>& tensors) {
  const SafetensorsPlan plan(std::move(entries), {{"format", "pt"}});
  std::string bytes = plan.head;
  for (const Tensor& tensor : tensors) bytes += SmallModel::bytes_of(tensor);
  write_file(path, bytes);
}

/// All weights in one file.
inline void write_weights(const std::string& path, const SmallModel& model) {
  const std::vector<PlannedFile> files = plan_weights(model.layout, INT64_MAX);
  std::string bytes = files[0].plan.head;
  bytes.resize(static_cast<size_t>(files[0].plan.bytes));
  const TrainingState state = model.state();
  const FileOrder order(state);
  std::vector<float> staged(static_cast<size_t>(model.params.size()));
  const Tensor weights{.ptr = staged.data(), .shape = model.params.shape};
  order.stage(Ctx{}, weights);
  for (const ParamSpec& spec : model.layout.specs())
    for_weight_runs(files, spec, model.layout.tensor(weights, spec), {0, spec.shape.size()},
                    model.layout, [&](size_t, int64_t at, Tensor run) {
                      std::memcpy(bytes.data() + at, run.ptr, static_cast<size_t>(run.bytes()));
                    });
  write_file(path, bytes);
}

class HfModel : public testing::Test {
 protected:
  explicit HfModel(const GptConfig& config) : model_{.config = config} {
    model_.fill(1);
    write_weights(path_, model_);
  }

  /// Why the weights are refused; empty: they are loaded.
  static std::string load(const std::string& path, SmallModel& model) {
    return user_error([&] { load_weights(Ctx{}, path, model.config, model.layout, model.params); });
  }
  std::string load(SmallModel& model) const { return load(dir_.path(), model); }
  void expect_same(const SmallModel& other) const {
    EXPECT_EQ(SmallModel::bytes_of(other.params), SmallModel::bytes_of(model_.params));
  }

  /// A tensor of the file, which must be there in FP32.
  std::vector<float> theirs(const std::string& name, Shape shape) const {
    const SafetensorsReader file(path_);
    std::vector<float> all(static_cast<size_t>(shape.size()));
    file.read(file.expect(name, Dtype::F32, shape), 0, std::as_writable_bytes(std::span(all)));
    return all;
  }
  Tensor ours(const std::string& name) const {
    return model_.layout.tensor(model_.params, model_.layout.spec(name));
  }
  /// What is said of a config.json of the model with one key changed.
  std::string refusal(const std::string& key, const nlohmann::json& value) const {
    nlohmann::json config = hf_config(model_.config);
    config[key] = value;
    return user_error([&] { check_hf_config(config, model_.config); });
  }

  TempDir dir_;
  std::string path_ = dir_ / "model.safetensors";
  SmallModel model_;
};

}  // namespace ladder
