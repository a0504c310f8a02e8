// Failure: how a program, or one rank of it, ends after an exception, whoever catches it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "common/error.h"

namespace ladder {

/// Exit status of a run that has ended without having done what was asked.
constexpr int kNotDone = 3;

/// A disk that is full, or fails, under an output that was legal when the run began.
class NotWritten : public UserError {
 public:
  explicit NotWritten(const std::string& reason) : UserError("{}", reason.c_str()) {}
};

struct Failure {
  std::string line;  ///< "error: ..." or "internal error: ...", and what takes less memory
  int status;        ///< 2: bad input, or more than the machine holds; kNotDone; 1: anything else
};

/// What run_threads() throws: the failure of the rank that failed first.
class RankFailed : public std::runtime_error {
 public:
  explicit RankFailed(Failure first) : std::runtime_error(first.line), failure_(std::move(first)) {}
  const Failure& failure() const { return failure_; }

 private:
  Failure failure_;
};

/// Of the exception that is being handled.
/// @param who threw it, for the line: "rank 2: "
Failure failure(const std::string& who = "");

/// Prints a line on stderr, as printable() has it (common/printable.h). One that cannot be written
/// is lost: there is nobody to tell.
void tell(const std::string& line);

/// Before process `rank` tells what others may meet alike: it leaves those before it the time to
/// tell it, and with that to end this one.
void wait_for_turn(int rank);

}  // namespace ladder
