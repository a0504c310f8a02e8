// SaveDirectory: the directory of --save. At any moment it holds a whole checkpoint, or none yet.
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
// Large weights lie in several files, which model.safetensors.index.json lists. Each has such a
// link (common/hf/file_names.h).
//
// A save fills a directory of its own, a generation, and writes it to the disk. Then it switches
// `current` to it, and then it removes the oldest of the generations that are too many (--keep). So
// `current` names a whole checkpoint, wherever a save is interrupted. Leftovers are removed when a
// program saves there again.
//
// All ranks know the name of a generation before there is one: its step, and a number that rank 0
// has drawn for the run. So each of them creates what is missing, and nobody waits. Rank 0 alone
// commits. Until then the link that becomes `current` lies in the generation: whoever finds it
// there knows that the generation was never committed.
//
// Only one program at a time may use the directory: a lock keeps a second one out. The lock ends
// with its program, however the program ends. If a file system has no locks, files of others are
// never removed, and a save fails if it finds another program's checkpoint in place of its own.
//
// Only names of the forms above are ever removed.
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
  /// On rank 0. Creates the directory, takes the lock and tries to write, so that a run does not
  /// fail only at its end. Removes generations that killed programs have left, which stderr is
  /// told: they would take the room of the next. Nothing where the file system has no locks.
  /// @param keep how many checkpoints stay, at least 1
  /// @throws UserError if nothing can be written there; and as current_generation() does
  explicit SaveDirectory(const std::string& dir, int64_t keep = 1);
  /// On the other ranks: where rank 0 has the directory.
  SaveDirectory(const std::string& dir, uint32_t run, int64_t keep)
      : path_(dir), run_(run), keep_(keep) {}
  SaveDirectory(const SaveDirectory&) = delete;
  SaveDirectory& operator=(const SaveDirectory&) = delete;
  /// A directory that it has created goes again if nothing has been saved.
  ~SaveDirectory();

  uint32_t run() const { return run_; }
  /// The directory of the generation of this step.
  std::filesystem::path generation(int64_t steps) const;

 private:
  friend class Generation;
  void remove_leftovers() const;
  void remove_old();
  void remove_stale_links() const;

  std::filesystem::path path_;
  uint32_t run_ = 0;  ///< in the names of this run's generations
  int64_t keep_;
  Descriptor fd_;  ///< of the directory, which holds the lock
  bool created_ = false;
  bool locked_ = false;  ///< not where the file system has no locks
  std::vector<std::string>
      kept_;  ///< generations that may be removed, oldest first; then `current`
};

/// Opens the directory on all ranks. All ranks call it.
/// @param dir on each rank, how it names the directory
/// @param shared whether each rank will write there
/// @param comm null: there is only this rank
/// @throws UserError on rank 0 if it cannot be used, or if some rank does not see it
std::unique_ptr<SaveDirectory> open_save_directory(const std::string& dir, int64_t keep,
                                                   bool shared, Comm* comm);

/// A checkpoint that is being written, on rank 0. Unless publish() succeeds, all of it is removed
/// with this object: on a full disk, it would only take room from the next try.
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
  /// Makes its files, which are all on the disk, the checkpoint. Removes older ones that are too
  /// many.
  /// @throws UserError; the previous checkpoint is then whole
  void publish();

 private:
  SaveDirectory& home_;
  std::filesystem::path path_;
  bool published_ = false;
};

/// Creates the directory of a generation, unless another rank has. @throws UserError
void make_generation(const std::filesystem::path& generation);

}  // namespace ladder
