// SaveDirectory: the directory of --save. At any moment it holds a whole checkpoint, or none yet.
//
//   current -> generation-200.4711                  one rename of this link is the switch
//   generation-200.4711/checkpoint.json             the manifest (common/save/manifest.h)
//                       optimizer.safetensors
//                       model.safetensors        } Hugging Face's from_pretrained() reads these
//                       config.json              } two
//                       tokenizer.json           } only if the run has a tokenizer
//                       tokenizer_config.json    }
//   model.safetensors -> current/model.safetensors  from_pretrained() looks for them here
//   config.json -> current/config.json              and for the two files of the tokenizer
//
// Large weights lie in several files, which model.safetensors.index.json lists. All of these files
// have links, too (common/hf/file_names.h).
//
// A save fills a directory of its own, a generation, and brings it to the disk. Then it commits:
// one rename makes `current` name the generation. Last it removes the oldest of the generations
// that are too many (--keep). So `current` names a whole checkpoint, wherever a save is
// interrupted. What an interrupted save has left is removed when a program saves there again.
//
// A generation's name has the number of steps done and a number that rank 0 draws once a run. So
// all ranks know the name before the directory exists, each rank creates what is missing, and
// nobody waits. Rank 0 alone commits. Until then the link that becomes `current` lies in the
// generation: if it is found there, the generation was never committed.
//
// Only one program at a time may use the directory: a lock keeps a second one out. The lock ends
// with its program, however the program ends. On a file system without locks, files of other
// programs are never removed, and a save fails if another program has committed there meanwhile.
//
// Only files with names as above are ever removed, and nothing of a checkpoint that was committed
// and is damaged.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/comm.h"
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
  /// On rank 0. Creates the directory, takes the lock and tries to write, so that a run that cannot
  /// save fails at its start. Removes generations that killed programs have left, which take room
  /// on the disk, and stderr says so. On a file system without locks it removes none.
  /// @param keep how many checkpoints stay, at least 1
  /// @throws UserError if nothing can be written there; and as current_generation() does
  explicit SaveDirectory(const std::string& dir, int64_t keep = 1);
  /// On the other ranks.
  /// @param run rank 0's run()
  SaveDirectory(const std::string& dir, uint32_t run, int64_t keep)
      : path_(dir), run_(run), keep_(keep) {}
  SaveDirectory(const SaveDirectory&) = delete;
  SaveDirectory& operator=(const SaveDirectory&) = delete;
  /// Removes a directory that it has created, if nothing has been saved in it.
  ~SaveDirectory();

  /// The number in the names of this run's generations.
  uint32_t run() const { return run_; }
  /// The directory of the generation after `steps` steps.
  std::filesystem::path generation(int64_t steps) const;

 private:
  friend class Generation;
  void remove_leftovers() const;
  void remove_old();
  void remove_stale_links() const;

  std::filesystem::path path_;
  uint32_t run_ = 0;
  int64_t keep_;
  Descriptor fd_;  ///< of the directory; it holds the lock
  bool created_ = false;
  bool locked_ = false;  ///< false: the file system has no locks
  /// Generations that may be removed, the one with the fewest steps first; then `current`, and what
  /// this run has saved since.
  std::vector<std::string> kept_;
};

/// Opens the directory on all ranks. All ranks call it.
/// @param dir the directory's path on this rank
/// @param shared whether every rank will write there
/// @param comm null: there is only this rank
/// @throws UserError on rank 0 if it cannot be used, or if some rank does not see it
std::unique_ptr<SaveDirectory> open_save_directory(const std::string& dir, int64_t keep,
                                                   bool shared, Comm* comm);

/// A checkpoint that is being written, on rank 0. If it was not committed, its files are removed
/// when this object ends: on a full disk they would take room from the next try.
class Generation {
 public:
  Generation(SaveDirectory& home, int64_t steps);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation();

  const std::filesystem::path& path() const { return path_; }
  std::string file(const char* name) const { return (path_ / name).string(); }
  /// @throws UserError
  void create() const;
  /// Commits: makes its files, whose content is on the disk, the checkpoint. Removes older
  /// generations that are too many.
  /// @throws UserError; a whole checkpoint, the previous one or this one, is then there
  void publish();

 private:
  SaveDirectory& home_;
  std::filesystem::path path_;
  bool published_ = false;
};

/// Creates the directory of a generation, unless another rank has. @throws UserError
void make_generation(const std::filesystem::path& generation);

}  // namespace ladder
