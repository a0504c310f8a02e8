// The manifest of a checkpoint: checkpoint.json, the file that says what the others hold.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "common/hf/safetensors.h"
#include "common/model/config.h"

namespace ladder {

/// More steps, or updates, or whatever a step counts, no run has: far below where they overflow.
inline constexpr int64_t kMaxCount = int64_t{1} << 40;

/// What a state counts. @throws UserError unless it is a whole number from 0 to kMaxCount
int64_t count_in(const nlohmann::json& value);

/// What checkpoint.json says.
struct Manifest {
  nlohmann::json model;  ///< sizes, as sizes_of() gives them
  nlohmann::json state;  ///< "step", and the chapter's own
  FileSum weights{};
  FileSum optimizer{};

  /// That are done.
  int64_t steps() const;

  /// Everything of `config` that weights depend on.
  static nlohmann::json sizes_of(const GptConfig& config);
  /// In what two of them differ, for a message.
  static std::string difference(const nlohmann::json& there, const nlohmann::json& here);
  /// In the directory of a checkpoint's files: see checkpoint_in().
  static std::filesystem::path path_in(const std::filesystem::path& generation);

  /// @throws UserError that names the file if it cannot be read, or is not as write() wrote it
  static Manifest read(const std::filesystem::path& generation);
  /// Of the checkpoint in a directory of --save; nothing if there is none. @throws as read()
  static std::optional<Manifest> find(const std::filesystem::path& dir);

  /// With a checksum over all of it. @throws UserError
  void write(const std::filesystem::path& generation) const;
};

}  // namespace ladder
