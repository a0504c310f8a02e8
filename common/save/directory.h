// SaveDirectory: the directory of --save. At any moment it holds one whole checkpoint, or none.
//
//   current -> generation-200.4711                  one rename of this link is the switch
//   generation-200.4711/checkpoint.json             the manifest (common/save/manifest.h)
//                       optimizer.safetensors
//                       model.safetensors           these two Hugging Face's GPT-2 reads
//                       config.json
//                       tokenizer.json           } of a run with a tokenizer
//                       tokenizer_config.json    }
//   model.safetensors -> current/model.safetensors  where its from_pretrained() looks for them
//   config.json -> current/config.json              and so the tokenizer's two
//
// A save fills a directory of its own, a generation, and writes it to the disk. Then it switches
// `current` to it, and then it removes the generation before. So `current` names a whole
// checkpoint, wherever a save is interrupted. Leftovers are removed when a program saves there
// again.
//
// Only one program at a time may use the directory: a lock keeps a second one out. The lock ends
// with its program, however the program ends. If a file system has no locks, files of others are
// never removed, and a save fails if it finds another program's checkpoint in place of its own.
//
// Only names of the forms above are ever removed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/error.h"
#include "common/input_file.h"

namespace ladder {

inline constexpr const char* kManifestFile = "checkpoint.json";
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kConfigFile = "config.json";

/// Where the files of a checkpoint are: the current generation, or `dir` itself if it is a copy of
/// one. Nothing if there is no checkpoint.
std::optional<std::filesystem::path> checkpoint_in(const std::filesystem::path& dir);

/// Returns use(checkpoint_in(dir)); nothing if there is no checkpoint. If `use` fails because
/// another program has switched and removed the files meanwhile, it tries again.
template <class Use>
auto with_checkpoint(const std::filesystem::path& dir, Use use)
    -> std::optional<decltype(use(dir))> {
  for (;;) {
    const std::optional<std::filesystem::path> found = checkpoint_in(dir);
    if (!found) return std::nullopt;
    try {
      return use(*found);
    } catch (const UserError&) {
      if (checkpoint_in(dir) == found) throw;
    }
  }
}

/// The name of the current generation; empty if there is none.
/// @throws UserError if a save needs a name that something else already has
std::string current_generation(const std::filesystem::path& dir);

class SaveDirectory {
 public:
  /// Creates the directory, takes the lock and tries to write, so that a run does not fail only at
  /// its end.
  /// @throws UserError if nothing can be written there; and as current_generation() does
  explicit SaveDirectory(const std::string& dir);
  SaveDirectory(const SaveDirectory&) = delete;
  SaveDirectory& operator=(const SaveDirectory&) = delete;
  /// A directory that it has created goes again if nothing has been saved.
  ~SaveDirectory();
  /// Removes generations that killed programs have left, which stderr is told: they would take the
  /// room of the next. Nothing where the file system has no locks.
  void remove_leftovers() const;

 private:
  friend class Generation;

  std::filesystem::path path_;
  Descriptor fd_;  ///< of the directory, which holds the lock
  bool created_ = false;
  bool locked_ = false;  ///< not where the file system has no locks
  std::string current_;  ///< the generation that this program found or made
};

/// A checkpoint that is being written. Unless publish() succeeds, all of it is removed with this
/// object: on a full disk, it would only take room from the next try.
class Generation {
 public:
  /// @throws UserError
  Generation(SaveDirectory& home, int64_t steps);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation();

  const std::filesystem::path& path() const { return path_; }
  std::string file(const char* name) const { return (path_ / name).string(); }
  /// Makes the link that publish() needs, to check that this is possible. @throws UserError
  void link() const;
  /// Makes its files, which are all on the disk, the checkpoint. Removes the previous checkpoint.
  /// @throws UserError; the previous checkpoint is then whole
  void publish();

 private:
  SaveDirectory& home_;
  std::string name_;
  std::filesystem::path path_;
  bool published_ = false;
};

}  // namespace ladder
