// Gathers texts of all ranks on rank 0: what ranks report at the end of a run.
#pragma once

#include <string>
#include <vector>

#include "common/comm/comm.h"

namespace ladder {

/// On rank 0: the texts of all ranks, in the order of ranks. On other ranks: nothing. All ranks
/// call it.
std::vector<std::string> gather_text(Comm& comm, std::string text);

}  // namespace ladder
