// Numbers that a flag may give.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "common/error.h"

namespace ladder {

/// @throws UserError naming the flag and what is legal
inline void require_range(std::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw UserError("{} must be from {} to {}, not {}", flag, low, high, value);
}

/// "1, 2, 4": the powers of two up to `most` that are legal(n). 1 always is.
template <class Legal>
std::string legal_degrees(int64_t most, Legal&& legal) {
  std::string list = "1";
  for (int64_t n = 2; n <= most; n *= 2)
    if (legal(n)) list += fmt::format(", {}", n);
  return list;
}

}  // namespace ladder
