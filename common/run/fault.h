// --fault: makes a collective operation, a message or a rank fail on purpose.
#pragma once

#include <string>

#include "common/comm/faulty_comm.h"
#include "common/comm/run_ranks.h"
#include "common/run/command_line.h"

namespace ladder {

/// --fault: a planted fault, for tests and for readers.
struct FaultOptions {
  std::string text;

  void add_to(CommandLine& line);
  /// @throws UserError that names what is legal
  void check() const { fault(); }

  /// @throws as check() does
  Fault fault() const;
  /// `body`, run on communicators with the fault. At the end, rank 0 says whether the fault
  /// happened.
  RankBody planted(RankBody body) const;
};

}  // namespace ladder
