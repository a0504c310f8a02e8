// A text that is long enough for sequences of more tokens than other tests have.
#pragma once

#include <cstddef>
#include <string>

namespace ladder::test {

/// The text again and again, until it has `least` bytes.
inline std::string repeated(const std::string& text, size_t least) {
  std::string all;
  while (all.size() < least) all += text;
  return all;
}

}  // namespace ladder::test
