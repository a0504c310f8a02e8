// Where a run starts: at initial weights, or at a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "common/save/training_state.h"
#include "kernels/context.h"

namespace ladder {

/// Fills `state` with the checkpoint in `load`; if that is empty, its weights with initial ones.
/// @return the first step to take
/// @throws UserError as load_checkpoint() does
int64_t load_or_init(const Ctx& ctx, const std::string& load, uint64_t seed,
                     const TrainingState& state);

}  // namespace ladder
