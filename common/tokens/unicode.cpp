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

}  // namespace

Char wide_char_at(std::string_view text, size_t at) {
  const auto [code, bytes] = utf8_at(text, at);
  return {code, bytes, code == kInvalid ? CharClass::Other : class_of(code)};
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
    if (byte >= 0xC0) return utf8_bytes(byte) > n ? n : 0;
    if (byte < 0x80) return 0;
  }
  return 0;
}

}  // namespace ladder
