// What files of a model are called, as Hugging Face's libraries look for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace ladder {

inline constexpr const char* kWeightsFile = "model.safetensors";
/// Says which of several files has which tensor.
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
inline constexpr const char* kConfigFile = "config.json";
/// The two files of an adapter, as peft looks for them (chapter 36).
inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

/// File i (from 0) of n: "model-00001-of-00003.safetensors".
inline std::string weights_file(size_t i, size_t n) {
  return n == 1 ? kWeightsFile : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
}

/// Whether weights_file() gives such a name.
inline bool is_weights_file(std::string_view name) {
  std::string form(name);
  std::ranges::replace_if(
      form, [](char c) { return c >= '0' && c <= '9'; }, '0');
  return name == kWeightsFile || form == "model-00000-of-00000.safetensors";
}

/// Whether from_pretrained() of transformers, or of peft, looks for a file of this name.
inline bool is_of_model(std::string_view name) {
  return is_weights_file(name) || name == kIndexFile || name == kConfigFile ||
         name == kAdapterFile || name == kAdapterConfigFile;
}

}  // namespace ladder
