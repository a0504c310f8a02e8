#include "common/tokens/unicode.h"

#include <algorithm>
#include <vector>

namespace ladder {
namespace {

constexpr char32_t kCodes = 0x110000;

struct Range {
  char32_t first, last;
  CharClass kind;
};
constexpr Range kRanges[] = {
#include "common/tokens/unicode_table.inc"
};

std::vector<CharClass> all_classes() {
  std::vector<CharClass> classes(kCodes, CharClass::Other);
  for (const auto& [first, last, kind] : kRanges)
    std::fill(classes.begin() + first, classes.begin() + last + 1, kind);
  return classes;
}

CharClass class_of(char32_t code) {
  static const std::vector<CharClass> classes = all_classes();
  return classes[code];
}

/// The smallest character of this many bytes. A smaller one must be written with fewer bytes.
constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};

/// How many bytes a character has that begins with this byte; 0: no character does.
size_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

}  // namespace

Char wide_char_at(std::string_view text, size_t at) {
  constexpr Char kOneByte{kInvalid, 1, CharClass::Other};
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const size_t length = length_of(byte(0));
  if (length == 0 || at + length > text.size()) return kOneByte;
  char32_t code = byte(0) & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return kOneByte;
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kSmallest[length] || code >= kCodes || is_surrogate) return kOneByte;
  return {code, static_cast<uint8_t>(length), class_of(code)};
}

size_t first_invalid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Char c = char_at(text, at);
    if (c.code == kInvalid) return at;
    at += c.bytes;
  }
  return std::string_view::npos;
}

size_t unfinished_bytes(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if (byte >= 0xC0) return length_of(byte) > n ? n : 0;
    if (byte < 0x80) return 0;
  }
  return 0;
}

}  // namespace ladder
