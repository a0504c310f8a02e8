// Makes text that others wrote safe to print: from a user, from a file, or from a model.
#pragma once

#include <string>
#include <string_view>

namespace ladder {

/// Valid UTF-8 as it is. All other bytes become `\xNN`, and so do the control characters that would
/// steer a terminal.
/// @param keep control characters of ASCII that stay: "\n"
std::string printable(std::string_view text, std::string_view keep = "");

/// Bytes of a value that a message quotes at most.
constexpr size_t kQuoted = 200;

/// `text`, or of a longer one the beginning and the end: at most `most` bytes.
std::string shortened(std::string_view text, size_t most = kQuoted);

}  // namespace ladder
