// --fault: a collective operation or a message that goes wrong, on purpose, or a rank that does.
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
  /// @throws UserError naming what is legal
  void check() const { fault(); }

  /// @throws as check()
  Fault fault() const;
  /// `body`, on communicators with the fault. At the end rank 0 says whether it has happened.
  RankBody planted(RankBody body) const;
};

}  // namespace ladder
