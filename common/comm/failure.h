// Failure: how a program, or one rank of it, ends after an exception, whoever catches it.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/error.h"

namespace ladder {

/// The exit status of a run that has ended without doing what was asked.
constexpr int kNotDone = 3;

/// A disk is full or fails under an output that was legal when the run began.
class NotWritten : public UserError {
 public:
  /// @param rank the one whose disk it is; another rank may throw this
  NotWritten(int rank, const std::string& reason) : UserError("{}", reason.c_str()), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

/// Legal input, from which nothing can be made: weights that are NaN.
class NotDone : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Failure {
  std::string line;  ///< "error: ..." or "internal error: ...", perhaps with advice
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
/// @param rank the one that threw it, for the line; none: there is only one. The line has the rank
/// of a NotWritten instead.
Failure failure(std::optional<int> rank = {});

/// Prints a line on stderr, made safe by printable() (common/printable.h). A line that cannot be
/// written is lost, because there is nobody to tell.
void tell(const std::string& line);

/// Called before process `rank` reports a failure that others may have, too. It gives a process of
/// lower rank the time to report it first; mpirun then ends this process.
void wait_for_turn(int rank);

}  // namespace ladder
