// Texts of all ranks, on rank 0: what they report of themselves at the end of a run.
#pragma once

#include <string>
#include <vector>

#include "common/comm/comm.h"

namespace ladder {

/// The texts of all ranks by rank, on rank 0; on the others nothing. All ranks call it.
std::vector<std::string> gather_text(Comm& comm, std::string text);

}  // namespace ladder
