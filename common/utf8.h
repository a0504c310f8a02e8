// The characters of a text in UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ladder {

constexpr char32_t kInvalid = 0xFFFFFFFF;

/// The code of a character, and how many bytes it has.
struct Utf8Char {
  char32_t code;  ///< kInvalid: a byte that is not valid UTF-8
  uint8_t bytes;  ///< 1 to 4
};

/// How many bytes a character has that begins with this byte; 0: no character does.
inline uint8_t utf8_bytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/// The character that begins at `at`, which is a place in the text.
inline Utf8Char utf8_at(std::string_view text, size_t at) {
  // The smallest character of this many bytes. A smaller one must be written with fewer bytes.
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  if (byte(0) < 0x80) return {byte(0), 1};
  const uint8_t bytes = utf8_bytes(byte(0));
  if (bytes == 0 || at + bytes > text.size()) return {kInvalid, 1};
  char32_t code = byte(0) & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {kInvalid, 1};
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kSmallest[bytes] || code > 0x10FFFF || is_surrogate) return {kInvalid, 1};
  return {code, bytes};
}

}  // namespace ladder
