// Numbers within texts that people write, such as 4:100.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace ladder {

/// The number that all of `text` is, if it is one.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || last != end) return std::nullopt;
  return number;
}

/// What stands before the first colon and behind it. Without a colon nothing is behind it.
inline std::pair<std::string_view, std::string_view> around_colon(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {text, {}};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

}  // namespace ladder
