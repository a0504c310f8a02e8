// Characters of UTF-8 and their classes, as regular expressions of tokenizers know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ladder {

/// \p{L}, \p{N}, \s, and what is none of them. One class for each character.
enum class CharClass : uint8_t { Other, Letter, Number, Space, End };

/// A character of a text. Where the text is not valid UTF-8, one byte is a character by itself, of
/// class Other; behind the last character there is one of no bytes, of class End.
struct Char {
  char32_t code;     ///< kInvalid: a byte that is not valid UTF-8
  uint8_t bytes;     ///< 0 to 4
  CharClass kind;
};
constexpr char32_t kInvalid = 0xFFFFFFFF;

/// The character that begins at `at`.
Char char_at(std::string_view text, size_t at);

/// Where the first byte is that is not valid UTF-8; npos: the text is valid.
size_t first_invalid(std::string_view text);

/// Bytes at the end of `text` that may be the beginning of a character: 0 to 3.
size_t unfinished_bytes(std::string_view text);

}  // namespace ladder
