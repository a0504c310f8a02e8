// What one rank writes of a checkpoint: runs of bytes of the files, which are the same on every
// layout.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/comm/comm.h"
#include "common/hf/weights.h"
#include "common/save/shared_file.h"
#include "common/save/training_state.h"
#include "kernels/context.h"

namespace ladder {

/// The files of a checkpoint that hold tensors: those of the weights, then that of the optimizer.
/// @param most bytes of a file of weights
std::vector<PlannedFile> plan_files(const TrainingState& state, int64_t most);

/// The shape that a tensor of the optimizer has in the file.
Shape whole_shape(const ParamLayout& layout, const Tensor& tensor);
/// Whether ranks may have parts of the tensor. Other tensors are on every rank or belong to one.
bool is_flat(const ParamLayout& layout, const Tensor& tensor);

/// What a rank has written.
struct Written {
  std::vector<uint32_t> sums;           ///< what its runs add to the CRC-32C of each file
  std::string not_finite;               ///< its first tensor with a NaN or an infinity; empty: none
  int64_t bad_file = 0, bad_entry = 0;  ///< where that tensor is in the plan
  std::string error;                    ///< why not all is written; empty: all is on the disk
  int64_t writes = 0, bytes = 0;
};

/// Writes the runs of this rank. Rank 0 also writes the heads of the files. Each byte is written by
/// one rank, whoever else holds it.
/// @param generation the directory; another rank may create it at the same time
/// @param gather null: every rank writes. Else the ranks that send theirs to rank 0, which writes
/// all; they all call this
Written write_own_runs(const Ctx& ctx, const TrainingState& state,
                       std::span<const PlannedFile> files, const std::string& generation,
                       Comm* gather);

}  // namespace ladder
