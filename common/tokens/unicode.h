// Characters of UTF-8 and their classes, as regular expressions of tokenizers know them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/utf8.h"

namespace ladder {

/// The classes that regular expressions call `\p{L}`, `\p{N}` and `\s`, and Other for the rest. A
/// character has one class.
enum class CharClass : uint8_t { Other, Letter, Number, Space, End };

/// A character of a text. A byte that is not valid UTF-8 is a character of class Other. After the
/// last character comes one of class End, which has no bytes.
struct Char {
  char32_t code;  ///< kInvalid: a byte that is not valid UTF-8
  uint8_t bytes;  ///< 0 to 4
  CharClass kind;
};

/// Classes of ASCII.
inline constexpr auto kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  for (char32_t c = 0; c < classes.size(); ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    classes[c] = letter                 ? CharClass::Letter
                 : c >= '0' && c <= '9' ? CharClass::Number
                 : space                ? CharClass::Space
                                        : CharClass::Other;
  }
  return classes;
}();

/// char_at() for characters that are not ASCII.
Char wide_char_at(std::string_view text, size_t at);

/// The character that begins at `at`.
inline Char char_at(std::string_view text, size_t at) {
  if (at >= text.size()) return {kInvalid, 0, CharClass::End};
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte < 0x80 ? Char{byte, 1, kAsciiClasses[byte]} : wide_char_at(text, at);
}

/// How many characters valid UTF-8 has: as many as bytes that do not continue a character.
inline int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

/// The place of the first byte that is not valid UTF-8; npos if the text is valid.
size_t first_invalid(std::string_view text);

/// How many bytes at the end of `text` may be the beginning of a character: 0 to 3.
size_t unfinished_bytes(std::string_view text);

}  // namespace ladder
