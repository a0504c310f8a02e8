#include "common/printable.h"

#include <fmt/format.h>

#include "common/utf8.h"

namespace ladder {
namespace {

bool is_control(char32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

}  // namespace

std::string printable(std::string_view text, std::string_view keep) {
  std::string shown;
  while (!text.empty()) {
    const auto [code, bytes] = utf8_at(text, 0);
    const std::string_view here = text.substr(0, bytes);
    text.remove_prefix(bytes);
    if ((code != kInvalid && !is_control(code)) || keep.find(here) != std::string_view::npos) {
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
