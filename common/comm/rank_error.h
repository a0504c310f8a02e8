// What happens to an exception that a rank throws.
#pragma once

#include <exception>
#include <string>

#include "common/comm/failure.h"

namespace ladder {

/// What one rank threw, in the form in which other ranks and the screen get it.
struct RankError {
  std::string message;       ///< "rank 2: no such file"
  std::exception_ptr error;  ///< with that message. UserError, NotWritten, CheckError,
                             ///< NoTemporaryFile and OutOfMemory keep their type
};

/// The exception that is being handled; `rank` threw it.
RankError rank_error(int rank);

/// How the program reports that exception, and the status with which it ends.
Failure failure_of(int rank);

}  // namespace ladder
