// Checkpoints of a run: from which one it starts, when it writes one, and when it refuses to.
#pragma once

#include <memory>
#include <string>

#include "common/run/log.h"
#include "common/save/training_state.h"

namespace ladder {

class SaveDirectory;

/// Fills `state` with the checkpoint in `load`; if that is empty, its weights with initial ones.
/// @return the first step to take
/// @throws UserError as load_checkpoint() does
int64_t load_or_init(const Ctx& ctx, const std::string& load, uint64_t seed,
                     const TrainingState& state);

/// Each rank of a Run has one; rank 0 holds the directory.
class Saver {
 public:
  /// @param log may begin its life later
  /// @throws UserError if the directory of --save cannot be written, or has a checkpoint that the
  /// run does not go on from
  Saver(const RunOptions& options, const Ctx& ctx, Log& log, int rank);
  ~Saver();

  /// Whether to save after this step, whose record the log has had: every --save-every steps, and
  /// after the last. A checkpoint whose loss is NaN or infinite is not written; stderr says so,
  /// --quiet or not. The same on all ranks.
  bool due(int64_t step, bool last);
  /// Saves. A state with a NaN or an infinity is not committed; stderr says so, --quiet or not. All
  /// ranks call it.
  /// @throws NotWritten on rank 0 if the disk refuses
  void save(const TrainingState& state, int64_t steps);

  // The next three are for a chapter that writes checkpoints itself.
  /// The state with what every run adds to it.
  TrainingState all_of(const TrainingState& state) const;
  /// The directory on rank 0; null on others.
  SaveDirectory* directory() const { return directory_.get(); }
  /// Records what became of a save, once it is done.
  /// @param why_not on rank 0, why nothing is saved
  /// @param told for --report
  void saved(int64_t steps, const std::string& why_not, nlohmann::json told);
  /// What the run, on rank 0, does otherwise than the one that wrote the checkpoint of --load.
  std::string changed() const;

 private:
  void tell_not_saved(int64_t step, const std::string& why);

  const RunOptions& options_;
  const Ctx& ctx_;
  Log& log_;
  std::unique_ptr<SaveDirectory> directory_;  ///< on rank 0
  nlohmann::json origin_;                     ///< rank 0's, if the run loads or saves
};

}  // namespace ladder
