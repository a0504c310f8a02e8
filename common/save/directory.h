// SaveDirectory: the directory of --save, which at any moment holds one whole checkpoint, or none.
//
//   current -> generation-200.4711                  one rename of this link is the switch
//   generation-200.4711/checkpoint.json             the manifest (common/save/manifest.h)
//                       optimizer.safetensors
//                       model.safetensors           these two Hugging Face's GPT-2 reads
//                       config.json
//   model.safetensors -> current/model.safetensors  where its from_pretrained() looks for them
//   config.json -> current/config.json
//
// A save fills a directory of its own, a generation, and puts it on the disk. Then it switches, and
// then it removes the generation before. So wherever it is interrupted, `current` names a whole
// checkpoint. What is left behind goes when a program saves there again.
//
// One program at a time: a lock on the directory, which ends with its program however that ends,
// keeps a second one out. Where a file system has no locks nothing of others is removed, and a save
// that finds another program's checkpoint in place of its own fails.
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

/// Where the files of a checkpoint lie: the generation that is current, or `dir` itself, if it is a
/// copy of one. Nothing if there is no checkpoint.
std::optional<std::filesystem::path> checkpoint_in(const std::filesystem::path& dir);

/// What use(checkpoint_in(dir)) returns; nothing if there is no checkpoint. If it fails because a
/// program that saves there has switched, and removed what was being read: once more.
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

/// The name of the generation that is current; empty if there is none.
/// @throws UserError if something that is not ours has a name that a save needs
std::string current_generation(const std::filesystem::path& dir);

class SaveDirectory {
 public:
  /// Creates the directory, takes the lock, and tries to write, so that a run does not find out at
  /// its end.
  /// @throws UserError if nothing can be written there, or as current_generation()
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

/// A checkpoint under way. Unless publish() is reached all of it goes with the object: on a full
/// disk it would only take room from the next try.
class Generation {
 public:
  /// @throws UserError
  Generation(SaveDirectory& home, int64_t steps);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation();

  const std::filesystem::path& path() const { return path_; }
  std::string file(const char* name) const { return (path_ / name).string(); }
  /// Makes the link that publish() needs, to see that it can be made. @throws UserError
  void link() const;
  /// Its files, each of which is on the disk, become the checkpoint. The one before goes.
  /// @throws UserError; the previous checkpoint is whole then
  void publish();

 private:
  SaveDirectory& home_;
  std::string name_;
  std::filesystem::path path_;
  bool published_ = false;
};

}  // namespace ladder
