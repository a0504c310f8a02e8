// The files of a model as Hugging Face's save_pretrained() writes them: weights in one file, or in
// several that an index joins, and config.json beside them.
#pragma once

#include <string>
#include <vector>

#include "common/hf/safetensors.h"

namespace ladder {

/// The files of one model, open.
struct HfFiles {
  std::vector<SafetensorsReader> weights;  ///< at least one; no tensor is in two
  std::string config;                      ///< path of config.json; empty: there is none
};

/// @param path a directory with `model.safetensors` or `model.safetensors.index.json`, such an
///             index, or a file of weights
/// @throws UserError naming the file that is missing, damaged, or holds other tensors than the
///         index says
HfFiles open_hf_files(const std::string& path);

}  // namespace ladder
