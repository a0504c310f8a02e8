// What becomes of an exception that a rank throws.
#pragma once

#include <exception>
#include <string>

#include "common/comm/failure.h"

namespace ladder {

/// What one rank threw, as the others and the screen are told.
struct RankError {
  std::string message;       ///< "rank 2: no such file"
  std::exception_ptr error;  ///< with that message. UserError, NotWritten, CheckError,
                             ///< NoTemporaryFile and OutOfMemory keep their type
};

/// The exception that is being handled, thrown by `rank`.
RankError rank_error(int rank);

/// What its program says of it.
Failure failure_of(int rank);

}  // namespace ladder
