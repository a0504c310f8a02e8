// What becomes of an exception that a rank throws.
#pragma once

#include <exception>
#include <string>

namespace ladder {

struct RankError {
  std::string message;       ///< "rank 2: no such file"
  std::exception_ptr error;  ///< with that message. UserError and CheckError keep their type
  int exit_status;           ///< 2 for a mistake of the user, 1 for others, as run_main()
};

/// The exception that is being handled, thrown by `rank`.
RankError rank_error(int rank);

}  // namespace ladder
