// What files of a model are called, as Hugging Face's libraries look for them.
#pragma once

#include <string_view>

namespace ladder {

inline constexpr const char* kWeightsFile = "model.safetensors";
/// Says which of several files has which tensor.
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
inline constexpr const char* kConfigFile = "config.json";
/// The two files of an adapter, as peft looks for them (chapter 36).
inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

/// Whether from_pretrained() of transformers, or of peft, looks for a file of this name.
inline bool is_of_model(std::string_view name) {
  return name == kWeightsFile || name == kConfigFile || name == kAdapterFile ||
         name == kAdapterConfigFile;
}

}  // namespace ladder
