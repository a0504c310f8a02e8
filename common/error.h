// UserError: what a user did wrong, as opposed to a CHECK, which is a bug of ours.
#pragma once

#include <stdexcept>

#include <fmt/format.h>

namespace ladder {

/// Bad input: a wrong flag, file, size or layout. The message is one line and says what is
/// legal; the program prints it and exits with status 2 (common/run/run_main.h).
class UserError : public std::runtime_error {
 public:
  template <class... Args>
  explicit UserError(fmt::format_string<Args...> text, Args&&... args)
      : std::runtime_error(fmt::format(text, std::forward<Args>(args)...)) {}
};

}  // namespace ladder
