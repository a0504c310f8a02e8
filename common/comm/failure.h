// Failure: how a program ends after an exception, whoever catches the exception.
#pragma once

#include <string>

#include "common/error.h"

namespace ladder {

/// The exit status of a run that has ended without doing what was asked.
constexpr int kNotDone = 3;

/// A disk is full or fails under an output that was legal when the run began.
class NotWritten : public UserError {
 public:
  explicit NotWritten(const std::string& reason) : UserError("{}", reason.c_str()) {}
};

struct Failure {
  std::string line;  ///< "error: ..." or "internal error: ...", perhaps with advice
  int status;        ///< 2: bad input, or more than the machine holds; kNotDone; 1: anything else
};

/// For the exception that is being handled.
Failure failure();

/// Prints a line on stderr, made safe by printable() (common/printable.h). A line that cannot be
/// written is lost, because there is nobody to tell.
void tell(const std::string& line);

/// Called before process `rank` reports a failure that others may have, too. It gives processes of
/// lower rank the time to report it, and by that to end this process.
void wait_for_turn(int rank);

}  // namespace ladder
