#include "common/printable.h"

#include <array>

#include <fmt/format.h>

namespace ladder {
namespace {

constexpr char32_t kNone = 0xFFFFFFFF;

/// The first character of a text in UTF-8. A byte that begins no character counts as one, without a
/// code.
struct Character {
  size_t bytes;
  char32_t code = kNone;
};

Character first_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < n) return {1};
  char32_t code = lead & (0xFFu >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {1};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::array<char32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[n] || code > 0x10FFFF || surrogate) return {1};
  return {n, code};
}

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

}  // namespace

std::string printable(std::string_view text, std::string_view keep) {
  std::string shown;
  while (!text.empty()) {
    const auto [bytes, code] = first_of(text);
    const std::string_view here = text.substr(0, bytes);
    text.remove_prefix(bytes);
    if ((code != kNone && !is_control(code)) || keep.find(here) != std::string_view::npos) {
      shown += here;
      continue;
    }
    for (const char c : here) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return shown;
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  constexpr std::string_view kGap = " ... ";
  const size_t half = (most - kGap.size()) / 2;
  // No character is cut in two.
  const auto begins = [&](size_t at) {
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
  };
  std::string cut(text.substr(0, begins(half)));
  cut += kGap;
  return cut += text.substr(begins(text.size() - half));
}

}  // namespace ladder
