// Checkpoints: everything that a run needs to go on. All its ranks write and read them together.
// common/save/directory.h says where the files are, and why there is a whole checkpoint at any
// moment.
//
// The files do not depend on how a run is spread over ranks. Their layout is known before they are
// written, so each rank writes its own bytes into the same files. To rank 0 go only checksums and
// votes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/save/directory.h"
#include "common/save/manifest.h"
#include "common/save/own_runs.h"
#include "common/save/training_state.h"

namespace ladder {

/// How a checkpoint is written.
struct SaveHow {
  int64_t file_bytes = 5'000'000'000;  ///< of the tensors in a file of weights: --shard-mb
  bool gather = false;                 ///< rank 0 writes what the others send it
};

/// A checkpoint that is being written, in three parts. Ranks need each other only in agree(). What
/// fails before publish() has returned is kept in error().
class CheckpointSave {
 public:
  /// What the next step needs beside tensors is read here, on rank 0.
  /// @param steps how many steps are done
  CheckpointSave(SaveDirectory& dir, const TrainingState& state, int64_t steps, SaveHow how = {});

  /// Writes this rank's bytes to the disk. May run in a thread, with a copy of the tensors, unless
  /// they are gathered.
  void write(const Ctx& ctx, const TrainingState& state);

  /// All ranks of `comm` call it when they have written: rank 0 learns what they have to say.
  /// @param comm null: there is only this rank
  void agree(Comm* comm);

  /// On rank 0: if all is well, makes this the checkpoint. Nothing on other ranks. May run in a
  /// thread.
  void publish();

  /// What this rank wrote; also its error until agree().
  const Written& written() const { return written_; }
  /// Why a disk has refused; on rank 0, from agree() on, of all ranks. The previous checkpoint is
  /// then whole.
  const std::string& error() const { return written_.error; }
  /// On rank 0, why nothing is saved: "transformer.wte.weight holds a NaN or an infinity". Such a
  /// checkpoint is not committed, because the previous one is worth more.
  const std::string& why_not() const { return why_not_; }

 private:
  /// Calls act(), unless something has failed. @throws nothing: a UserError is kept
  template <class Act>
  void attempt(Act&& act);

  std::vector<PlannedFile> files_;
  std::string path_;
  SaveHow how_;
  std::optional<Generation> generation_;  ///< on rank 0
  Manifest manifest_;
  std::map<std::string, std::string> texts_;  ///< what the other files will hold, by name
  Written written_;
  std::string why_not_;
};

/// All of it. All ranks of state.comm call it.
/// @return on rank 0, why_not(). Other ranks get an empty text
/// @throws UserError on rank 0 if the disk of some rank refuses
std::string save_checkpoint(const Ctx& ctx, SaveDirectory& dir, const TrainingState& state,
                            int64_t steps, SaveHow how = {});

/// Reads what save_checkpoint wrote. Every rank reads the parts that it holds. If the checkpoint
/// has a state that `state` does not name, because another chapter wrote it, that state is skipped,
/// and stderr says so. A path without a checkpoint goes to load_weights (common/hf/weights.h); the
/// rest of `state` then stays as it is. Padding becomes zero.
/// @return how many steps are done
/// @throws UserError if anything is missing, damaged, or of another model or optimizer; no tensor
/// is then changed
int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state);

}  // namespace ladder
