// SaveDirectory: the directory of --save. From the first save on it holds a whole checkpoint at any
// moment.
//
//   current -> generation-200.4711                  one rename of this link is the commit
//   generation-200.4711/checkpoint.json             the manifest (common/save/manifest.h)
//                       optimizer.safetensors
//                       model.safetensors        } Hugging Face's from_pretrained() reads these
//                       config.json              } two
//                       tokenizer.json           } only if the run has a tokenizer
//                       tokenizer_config.json    }
//   model.safetensors -> current/model.safetensors  from_pretrained() looks for them here
//   config.json -> current/config.json              and for the two files of the tokenizer
//
// Rank 0 fills a directory of its own, a generation, and brings it to the disk. The manifest is
// written last, so a generation with a manifest is whole. Then one rename makes `current` name the
// generation. Last those that are too many go, by their steps (--keep). So `current` names a whole
// checkpoint, wherever a save is interrupted. A generation without a manifest is what an
// interrupted save has left: it is removed when a program saves there again.
//
// A whole generation is a checkpoint even if no link names it, because copies lose links and times.
// Which one is the newest, its manifest says: it has the number of steps done. So it is the steps
// that decide which ones stay.
//
// A lock keeps a second program out. It ends with its program, however the program ends. On a file
// system without locks, a note says so, and nothing is removed there.
//
// Only files with names as above are ever removed, and nothing of a damaged checkpoint.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/hf/file_names.h"
#include "common/input_file.h"

namespace ladder {

inline constexpr const char* kManifestFile = "checkpoint.json";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

/// Where the files of a checkpoint are: the current generation, or `dir` itself if it is a copy of
/// one. If no link names a generation, it is the whole one with the most steps. Nothing if there is
/// no checkpoint.
std::optional<std::filesystem::path> checkpoint_in(const std::filesystem::path& dir);

/// Whether checkpoint_in(dir) has found a generation that no link names.
bool is_unnamed(const std::filesystem::path& dir, const std::filesystem::path& found);

/// Returns use(checkpoint_in(dir)); nothing if there is no checkpoint. If `use` fails because
/// another program has committed and removed the files meanwhile, it tries again.
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

/// @throws UserError if a save needs a name in the directory that something else already has
void refuse_foreign_files(const std::filesystem::path& dir);

/// Of rank 0.
class SaveDirectory {
 public:
  /// Creates the directory, takes the lock and tries to write, so that a run that cannot save fails
  /// at its start. Removes what interrupted saves have left, and stderr says so.
  /// @param keep how many checkpoints stay, at least 1
  /// @throws UserError if nothing can be written there; and as refuse_foreign_files() does
  explicit SaveDirectory(const std::string& dir, int64_t keep = 1);
  SaveDirectory(const SaveDirectory&) = delete;
  SaveDirectory& operator=(const SaveDirectory&) = delete;
  /// Removes a directory that it has created, if nothing has been saved in it.
  ~SaveDirectory();

 private:
  friend class Generation;
  void remove_leftovers() const;
  /// `current` stays, and the last ones before it, by their steps.
  void remove_old() const;

  std::filesystem::path path_;
  int64_t keep_;
  Descriptor fd_;  ///< of the directory; it holds the lock
  bool created_ = false;
  bool locked_ = false;  ///< false: the file system has no locks
};

/// A checkpoint that is being written. If it was not committed, its files are removed when this
/// object ends: on a full disk they would take room from the next try.
class Generation {
 public:
  /// Creates it. @throws UserError
  Generation(SaveDirectory& home, int64_t steps);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation();

  const std::filesystem::path& path() const { return path_; }
  std::string file(const char* name) const { return (path_ / name).string(); }
  /// Commits: makes its files, whose content is on the disk, the checkpoint. Removes older
  /// checkpoints that are too many.
  /// @throws UserError; a whole checkpoint, the previous one or this one, is then there
  void publish();

 private:
  SaveDirectory& home_;
  std::filesystem::path path_;
};

}  // namespace ladder
