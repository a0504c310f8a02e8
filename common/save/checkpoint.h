// Checkpoints: everything that a run needs to go on. All its ranks write and read them together.
// common/save/directory.h says where the files are, and why a whole checkpoint is there at any
// moment after the first save.
//
// The files do not depend on how a run is spread over ranks. It is known before the first write
// where each byte belongs, so each rank writes its own bytes into the same files. Unless
// rank 0 gathers them, it gets only checksums, errors and names of tensors that are not finite.
// file_order.h says which numbers ranks exchange before they write.
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
  int64_t file_bytes =
      5'000'000'000;    ///< most bytes of tensors in a file of weights; Hugging Face's
  bool gather = false;  ///< rank 0 writes what the others send it
};

/// A save in three calls: write(), agree(), publish(). What fails in any of them is kept in
/// error().
class CheckpointSave {
 public:
  /// Reads, on rank 0, all of the state that is not tensors.
  /// @param steps how many steps are done
  CheckpointSave(SaveDirectory& dir, const TrainingState& state, int64_t steps, SaveHow how = {});

  /// Writes this rank's bytes to the disk. All ranks call it. If the state is staged, and rank 0
  /// does not gather, no rank needs another: it may run in a thread.
  void write(const Ctx& ctx, const TrainingState& state);

  /// All ranks of `comm` call it after write(). Rank 0 learns checksums, errors and what is not
  /// finite.
  /// @param comm null: there is only this rank
  void agree(Comm* comm);

  /// On rank 0: commits, unless there is an error or a number that is not finite. Does nothing on
  /// other ranks. May run in a thread.
  void publish();

  /// What this rank wrote.
  const Written& written() const { return written_; }
  /// The same for --report.
  nlohmann::json report() const;
  /// Why the disk of this rank has refused; empty: it has not. On rank 0, from agree() on, that of
  /// any rank. The previous checkpoint is then whole.
  const std::string& error() const { return written_.error; }
  /// The rank whose disk that is.
  int failed_rank() const { return failed_rank_; }
  /// On rank 0, why nothing is saved: "transformer.wte.weight holds a NaN or an infinity". Such a
  /// checkpoint is not committed, because the previous one is worth more.
  const std::string& why_not() const { return why_not_; }

 private:
  std::vector<PlannedFile> files_;
  std::string path_;
  SaveHow how_;
  std::optional<Generation> generation_;  ///< on rank 0
  std::vector<uint64_t> covers_;          ///< covers_of()
  Manifest manifest_;
  std::map<std::string, std::string> texts_;  ///< files without tensors: name -> content
  Written written_;
  int failed_rank_ = 0;
  std::string why_not_;
};

/// Reads what a CheckpointSave has published. Every rank reads the parts that it holds. All ranks
/// read one checkpoint, even if another program saves meanwhile. If the checkpoint has a state that
/// `state` does not name, because another chapter wrote it, that state is skipped. A needed state
/// that the checkpoint lacks is an error; any other stays as it is. stderr says what was skipped
/// and what was lacking. If `path` holds no checkpoint, load_weights (common/hf/weights.h) reads
/// weights alone. Padding becomes zero.
/// @return how many steps are done
/// @throws UserError if anything is missing, damaged, or of another model or optimizer; no tensor
/// is then changed
int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state);

}  // namespace ladder
