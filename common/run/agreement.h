// What a run has in common with others: with the other ranks, and with the run that wrote the
// checkpoint it goes on from.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "common/comm/comm.h"
#include "common/run/options.h"

namespace ladder {

/// Ranks that are processes are started one by one, each with a command line of its own, and on
/// machines with files of their own: what differs would hang, or train something else. Compares
/// program, flags and what they name over all ranks; of an output only whether there is one. How
/// many threads a rank has, and whether it is quiet, is its own affair. All ranks call it, and none
/// returns unless all agree.
/// @throws UserError on rank 0, naming the first flag that differs, and the ranks
void check_agreement(Comm& comm, const RunOptions& options);

/// What a checkpoint tells of its run beside what the next step needs: {"seed": 1, "text":
/// "4137850 bytes, 0123456789abcdef"}. Going on with others is legal, and another run from there
/// on. @throws UserError if the text cannot be read
nlohmann::json origin_of(const RunOptions& options);

/// "--seed 1, now 2; another text": what has changed since the checkpoint `load` was written.
/// Empty: nothing, or it does not tell.
std::string changed_origin(const std::string& load, const nlohmann::json& now);

}  // namespace ladder
