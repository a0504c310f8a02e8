// Checkpoints: everything that a run needs to go on. common/save/directory.h says where the files
// are, and why a whole checkpoint is there at any moment after the first save.
//
// The files do not depend on how a run is spread over ranks. Rank 0 writes them, section by
// section, as the others send it theirs. In chapter 28 each rank writes its own bytes of the same
// files.
#pragma once

#include <map>
#include <string>

#include "common/save/directory.h"
#include "common/save/manifest.h"
#include "common/save/training_state.h"
#include "kernels/context.h"

namespace ladder {

/// The file of the optimizer's state. plan_weights() (common/save/hf_weights.h) plans the other
/// one.
SafetensorsPlan plan_optimizer(const TrainingState& state);

/// Whether each rank has a part of the tensor. Any other tensor of the optimizer is the same on
/// every rank, or belongs to rank 0.
bool is_flat(const ParamLayout& layout, const Tensor& tensor);

/// What a checkpoint holds beside tensors, on rank 0. The constructor copies it, so that training
/// may go on before commit().
class SmallStates {
 public:
  /// @param steps how many steps are done
  SmallStates(const TrainingState& state, int64_t steps);
  /// The first state with a NaN or an infinity, which JSON cannot hold; empty: none.
  std::string not_finite() const;
  /// Writes it into the generation, whose files of tensors are on the disk, and commits.
  /// @throws UserError if the disk refuses
  void commit(Generation& generation, const FileSum& weights, const FileSum& optimizer);

 private:
  const char* weights_file_;
  Manifest manifest_;
  std::map<std::string, std::string> texts_;  ///< other files: name -> content
};

/// Saves. All ranks call it.
/// @param dir on rank 0; null on the others
/// @return on rank 0, why nothing is saved: "transformer.wte.weight holds a NaN or an infinity".
/// The previous checkpoint is worth more. Empty if it is saved, and on other ranks
/// @throws UserError if the disk refuses; the previous checkpoint is then whole
std::string save_checkpoint(const Ctx& ctx, SaveDirectory* dir, const TrainingState& state,
                            int64_t steps);

/// Reads the weights of a checkpoint, and the states that `state` names; what it does not name is
/// left aside without a note, the optimizer too. For programs that train nothing, on one rank. If
/// `path` holds no checkpoint, load_weights reads weights alone.
/// @throws UserError as load_checkpoint
void load_parameters(const Ctx& ctx, const std::string& path, const TrainingState& state);

/// Reads what was saved. Every rank reads the parts that it holds. If the checkpoint has a state
/// that `state` does not name, because another chapter wrote it, that state is skipped. A needed
/// state that the checkpoint lacks is an error; any other stays as it is. stderr says what was
/// skipped and what was lacking. If `path` holds no checkpoint, load_weights
/// (common/save/hf_weights.h) reads weights alone. Padding becomes zero.
/// @return how many steps are done
/// @throws UserError if anything is missing, damaged, or of another model or optimizer, or if ranks
/// find different checkpoints; no tensor is then changed
int64_t load_checkpoint(const Ctx& ctx, const std::string& path, const TrainingState& state);

}  // namespace ladder
