// Agreement: ranks that are processes are started one by one, each with a command line of its own,
// and on machines with files of their own. What differs would hang, or train something else.
#pragma once

#include "common/comm/comm.h"
#include "common/run/options.h"

namespace ladder {

/// Compares program, flags and what they name over all ranks: the content of the text and of the
/// checkpoint, the value of other flags; of an output only whether there is one. How many threads a
/// rank has, and whether it is quiet, is its own affair. All ranks call it, and none returns unless
/// all agree.
/// @throws UserError on rank 0, naming the first flag that differs, and the ranks
void check_agreement(Comm& comm, const RunOptions& options);

}  // namespace ladder
