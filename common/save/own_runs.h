// What one rank writes of a checkpoint. A run of bytes is neighboring bytes of a file. The files
// are the same on every layout; which runs a rank writes depends on the layout.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/comm.h"
#include "common/error.h"
#include "common/hf/weights.h"
#include "common/save/shared_file.h"
#include "common/save/training_state.h"
#include "kernels/context.h"

namespace ladder {

/// The files of a checkpoint that hold tensors: those of the weights, then that of the optimizer.
/// @param most bytes of tensors in a file of weights
std::vector<PlannedFile> plan_files(const TrainingState& state, int64_t most);

/// The shape that a tensor of the optimizer has in the file.
Shape whole_shape(const ParamLayout& layout, const Tensor& tensor);
/// Whether each rank has a part of the tensor. Any other tensor is on every rank or belongs to one.
bool is_flat(const ParamLayout& layout, const Tensor& tensor);

/// What a rank has written.
struct Written {
  /// Calls act(), unless something has failed. @throws nothing: a UserError is kept
  template <class Act>
  void attempt(Act&& act) {
    if (!error.empty()) return;
    try {
      act();
    } catch (const UserError& e) {
      error = e.what();
    }
  }

  std::vector<RunsSum> sums;            ///< of its runs in each file
  std::string not_finite;               ///< its first tensor with a NaN or an infinity; empty: none
  int64_t bad_file = 0, bad_entry = 0;  ///< where that tensor is in the plan
  std::string error;                    ///< why not all is written; empty: all is on the disk
  int64_t writes = 0, bytes = 0;
  int64_t write_ns = 0, sync_ns = 0;  ///< how long it wrote, and then waited for the disk
  int64_t busy_ns = 0;                ///< of both: on a processor
};

/// RunsSum::cover of each file, summed over ranks, if they write each byte once.
std::vector<uint64_t> covers_of(const TrainingState& state, std::span<const PlannedFile> files);

/// Writes the runs of this rank. Rank 0 also writes the headers of the files. If several ranks hold
/// a number, one of them writes it. Unless the state is staged, all ranks call it, and a copy of
/// the weights that this rank writes takes memory meanwhile.
/// @param generation the directory; another rank may create it at the same time
/// @param gather null: every rank writes. Otherwise its ranks send their runs to rank 0, which
/// writes all; all of them call this
Written write_own_runs(const Ctx& ctx, const TrainingState& state,
                       std::span<const PlannedFile> files, const std::string& generation,
                       Comm* gather);

}  // namespace ladder
