// --fault: makes a collective operation, a message or a rank fail on purpose, for tests and for
// readers.
#pragma once

#include <string>

#include "common/comm/faulty_comm.h"
#include "common/comm/run_ranks.h"

namespace ladder {

/// @param text the value of --fault; empty: no fault
/// @throws UserError that names what is legal
Fault fault_of(const std::string& text);

/// `body`, run on communicators with that fault. At the end, rank 0 says whether the fault
/// happened.
/// @throws as fault_of() does
RankBody planted(const std::string& text, RankBody body);

}  // namespace ladder
