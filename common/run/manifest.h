// The manifest of a checkpoint: checkpoint.json, the file that makes a checkpoint of the others.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "common/model/config.h"
#include "common/run/safetensors.h"

namespace ladder {

struct Manifest {
  struct File {
    std::string name;  ///< inside the directory
    FileSum sum;
  };
  nlohmann::json model;  ///< sizes, as sizes_of() gives them
  nlohmann::json state;  ///< "step", and the chapter's own
  File weights{};
  File optimizer{};

  /// That are done.
  int64_t steps() const;

  /// Everything of `config` that weights depend on.
  static nlohmann::json sizes_of(const GptConfig& config);
  static std::filesystem::path path_in(const std::filesystem::path& dir);

  /// @throws UserError if it cannot be read or is not one of ours
  static Manifest read(const std::filesystem::path& dir);
  /// Nothing if there is none. @throws UserError as read()
  static std::optional<Manifest> find(const std::filesystem::path& dir);
  /// Written to a new name and renamed: the moment at which a checkpoint becomes the current one.
  void write(const std::filesystem::path& dir) const;
};

}  // namespace ladder
