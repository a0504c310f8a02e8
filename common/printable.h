// Text of others on a screen: what a user gave, what a file holds, what a model wrote.
#pragma once

#include <string>
#include <string_view>

namespace ladder {

/// Valid UTF-8 as it is. All other bytes become `\xNN`, and so do the characters that would steer a
/// terminal or turn the order of letters: C0, DEL, C1, separators of lines, bidirectional controls.
/// @param keep control characters of ASCII that stay: "\n"
std::string printable(std::string_view text, std::string_view keep = "");

/// Characters of a value that a message quotes at most.
constexpr size_t kQuoted = 200;

/// `text`, or of a longer one the beginning and the end: at most `most` characters.
std::string shortened(std::string_view text, size_t most = kQuoted);

/// `text` for a message that says how it differs from `other`: of a long one without the beginning
/// that both have, as shortened() could make them the same.
std::string from_difference(std::string_view text, std::string_view other);

}  // namespace ladder
