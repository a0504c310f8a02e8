// UserError: a mistake of the user. A failed CHECK, by contrast, is a bug of ours.
#pragma once

#include <concepts>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "common/printable.h"

namespace ladder {

/// Bad input: a wrong flag, file, size or layout. The message is one line and says what is legal.
/// The program prints it and exits with status 2 (common/run/run_main.h).
///
/// Strings among the arguments are values: of a long one, the message quotes only the beginning and
/// the end. An argument that is part of the message is a const char*.
class UserError : public std::runtime_error {
 public:
  template <class... Args>
  explicit UserError(fmt::format_string<Args...> text, Args&&... args)
      : std::runtime_error(formatted(text, quoted(args)...)) {}

 private:
  template <class T>
  static decltype(auto) quoted(const T& value) {
    constexpr bool is_message = std::is_array_v<T> || std::is_pointer_v<T>;
    if constexpr (std::convertible_to<const T&, std::string_view> && !is_message)
      return shortened(value);
    else
      return (value);
  }
  template <class... Args>
  static std::string formatted(fmt::string_view text, const Args&... args) {
    return fmt::vformat(text, fmt::make_format_args(args...));
  }
};

}  // namespace ladder
