// require_range: a number that a flag gives lies between two others.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/error.h"

namespace ladder {

/// @throws UserError naming the flag and what is legal
inline void require_range(std::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw UserError("{} must be from {} to {}, not {}", flag, low, high, value);
}

}  // namespace ladder
