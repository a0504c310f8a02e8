// Characters of UTF-8 and their classes, as regular expressions of tokenizers know them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ladder {

/// \p{L}, \p{N}, \s, and what is none of them. One class for each character.
enum class CharClass : uint8_t { Other, Letter, Number, Space, End };

/// A character of a text. Where the text is not valid UTF-8, one byte is a character by itself, of
/// class Other; behind the last character there is one of no bytes, of class End.
struct Char {
  char32_t code;  ///< kInvalid: a byte that is not valid UTF-8
  uint8_t bytes;  ///< 0 to 4
  CharClass kind;
};
constexpr char32_t kInvalid = 0xFFFFFFFF;

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

/// char_at() of what is not ASCII.
Char wide_char_at(std::string_view text, size_t at);

/// The character that begins at `at`.
inline Char char_at(std::string_view text, size_t at) {
  if (at >= text.size()) return {kInvalid, 0, CharClass::End};
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte < 0x80 ? Char{byte, 1, kAsciiClasses[byte]} : wide_char_at(text, at);
}

/// Where the first byte is that is not valid UTF-8; npos: the text is valid.
size_t first_invalid(std::string_view text);

/// Bytes at the end of `text` that may be the beginning of a character: 0 to 3.
size_t unfinished_bytes(std::string_view text);

}  // namespace ladder
