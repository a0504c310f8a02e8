// The manifest of a checkpoint: checkpoint.json, which says what the other files hold.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "common/hf/safetensors.h"
#include "common/model/config.h"

namespace ladder {

/// The largest count of steps, updates or anything else. It is far below overflow.
inline constexpr int64_t kMaxCount = int64_t{1} << 40;

/// A count in a state. @throws UserError unless it is a whole number from 0 to kMaxCount
int64_t count_in(const nlohmann::json& value);

/// What checkpoint.json says.
struct Manifest {
  nlohmann::json model;                       ///< sizes_of()
  nlohmann::json state;                       ///< "step", and states of the chapter
  std::map<std::string, FileSum> files = {};  ///< bytes and checksums of the files with tensors

  /// How many steps are done.
  int64_t steps() const;

  /// All sizes of `config` that the weights depend on.
  static nlohmann::json sizes_of(const GptConfig& config);
  /// The reverse. Weights do not depend on `seq_len`, which must be given where positions are not
  /// learned: the longest text. @throws UserError, or nlohmann::json::exception
  static GptConfig config_of(const nlohmann::json& sizes, int64_t seq_len);
  /// In what two of them differ, for a message.
  static std::string difference(const nlohmann::json& there, const nlohmann::json& here);
  /// @param generation a directory as checkpoint_in() returns it; kManifestFile lies there
  /// @throws UserError that names the file if it cannot be read, or is not as write() left it
  static Manifest read(const std::filesystem::path& generation);
  /// The manifest of the checkpoint in a directory of --save; nothing if there is none. @throws as
  /// read()
  static std::optional<Manifest> find(const std::filesystem::path& dir);

  /// What write() writes: all of it, with a checksum.
  std::string text() const;
  /// @throws UserError
  void write(const std::filesystem::path& generation) const;
};

}  // namespace ladder
