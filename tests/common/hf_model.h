// A small model in files of Hugging Face, for tests of what is read and written there.
#pragma once

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/save/hf_config.h"
#include "common/save/hf_weights.h"
#include "kernels/narrow.h"
#include "tests/common/run_files.h"
#include "tests/common/run_model.h"

namespace ladder {

/// All bytes of a tensor.
inline std::vector<std::byte> bytes_of(const SafetensorsReader& file, const TensorEntry& entry) {
  std::vector<std::byte> all(static_cast<size_t>(entry.bytes()));
  file.read(entry, 0, all);
  return all;
}

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
  SafetensorsWriter writer(path, plan_weights(model.layout));
  for (int64_t s = 0; s < model.layout.sections(); ++s)
    append_weights(writer, model.layout, s, model.layout.section_of(model.params, s));
  writer.finish();
}

/// Why a config.json of the model, with one key changed, is refused; empty: it is not.
inline std::string config_refusal(const GptConfig& config, const std::string& key,
                                  const nlohmann::json& value) {
  nlohmann::json theirs = hf_config(config);
  theirs[key] = value;
  return user_error([&] { check_hf_config(theirs, config); });
}

/// A file of weights, and what is made of it.
class HfModel : public testing::Test {
 protected:
  explicit HfModel(const GptConfig& config) : model_{.config = config} {
    model_.fill(1);
    write_weights(path_, model_);
  }
  void write_config() const { write_file(dir_ / "config.json", config_.dump()); }

  /// Writes the tensors of `path_` again, those to which rename() gives a name, as `dtype`; then
  /// `more`.
  template <class Rename>
  void rewrite(Rename rename, Dtype dtype = Dtype::F32,
               std::vector<SafetensorsPlan::Entry> more = {},
               const std::string& file = "model.safetensors") {
    const SafetensorsReader whole(path_);
    std::vector<SafetensorsPlan::Entry> entries;
    std::vector<std::vector<std::byte>> bytes;
    std::vector<Tensor> tensors;
    for (const auto& [ours, entry] : whole.entries()) {
      const std::string name = rename(ours);
      if (name.empty()) continue;
      Shape shape;
      for (int64_t extent : entry.shape) shape.dims[shape.rank++] = extent;
      entries.push_back({name, dtype, shape});
      bytes.push_back(bytes_of(whole, entry));
      if (dtype != Dtype::F32) narrow_all(bytes.back(), dtype == Dtype::F16 ? kF16 : kBf16);
      tensors.push_back({.ptr = bytes.back().data(), .dtype = dtype, .shape = shape});
    }
    for (const SafetensorsPlan::Entry& extra : more) {
      entries.push_back(extra);
      tensors.push_back(model_.arena.zeros(Mem::Param, extra.name, extra.dtype, extra.shape));
    }
    write_safetensors(dir_ / file, entries, tensors);
  }
  /// For rewrite(): all tensors but this one.
  static auto without(const std::string& gone) {
    return [=](const std::string& name) { return name == gone ? "" : name; };
  }
  static void narrow_all(std::vector<std::byte>& bytes, const Format& format) {
    for (size_t i = 0; i < bytes.size() / 4; ++i) {
      float x = 0;
      std::memcpy(&x, &bytes[i * 4], 4);
      const auto code = static_cast<uint16_t>(narrow(format, x, Overflow::ToInfinity));
      std::memcpy(&bytes[i * 2], &code, 2);
    }
  }

  /// Why a path is refused; empty: it is loaded.
  static std::string load(const std::string& path, SmallModel& model) {
    return user_error([&] { model.load(path); });
  }
  std::string load(SmallModel& model) const { return load(dir_.path(), model); }
  void expect_same(const SmallModel& other) const {
    EXPECT_EQ(SmallModel::bytes_of(other.params), SmallModel::bytes_of(model_.params));
  }
  void expect_loads(const std::string& path) const {
    SmallModel other{.config = model_.config};
    std::fill_n(other.params.data<float>(), other.params.size(), std::nanf(""));
    EXPECT_EQ(load(path, other), "");
    expect_same(other);
  }
  /// Refused in one line, and nothing is modified.
  void expect_refused(const std::string& path, const std::string& why) const {
    SmallModel other{.config = model_.config};
    other.fill(7);
    const std::string before = other.bytes(), message = load(path, other);
    EXPECT_NE(message.find(why), std::string::npos) << message;
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(other.bytes(), before);
  }
  void expect_refused(const std::string& why) const { expect_refused(dir_.path(), why); }

  /// The names of the tensors in the file.
  std::set<std::string> names() const {
    std::set<std::string> all;
    const SafetensorsReader file(path_);
    for (const auto& [name, entry] : file.entries()) all.insert(name);
    return all;
  }
  /// A tensor of the file, which must be there in FP32.
  std::vector<float> theirs(const std::string& name, Shape shape) const {
    const SafetensorsReader file(path_);
    std::vector<float> all(static_cast<size_t>(shape.size()));
    file.read(file.expect(name, Dtype::F32, shape), 0, std::as_writable_bytes(std::span(all)));
    return all;
  }
  Tensor ours(const std::string& name) const { return model_.tensor(name); }
  std::string refusal(const std::string& key, const nlohmann::json& value) const {
    return config_refusal(model_.config, key, value);
  }

  TempDir dir_;
  std::string path_ = dir_ / "model.safetensors";
  SmallModel model_;
  nlohmann::json config_ = hf_config(model_.config);
};

}  // namespace ladder
