// Makes text that others wrote safe to print: from a user, from a file, or from a model.
#pragma once

#include <string>
#include <string_view>

namespace ladder {

/// Keeps valid UTF-8. All other bytes become `\xNN`. So do characters that would steer a terminal
/// or turn the order of letters: C0, DEL, C1, line separators, bidirectional controls.
/// @param keep control characters of ASCII that are kept: "\n"
std::string printable(std::string_view text, std::string_view keep = "");

/// The most characters of a value that a message quotes.
constexpr size_t kQuoted = 200;

/// `text`, cut to at most `most` characters: a longer text keeps its beginning and its end.
std::string shortened(std::string_view text, size_t most = kQuoted);

/// `text`, for a message that says how it differs from `other`. A long text loses the beginning
/// that both share; without that, shortened() could make the two equal.
std::string from_difference(std::string_view text, std::string_view other);

}  // namespace ladder
