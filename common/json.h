// Reads JSON that anyone may have written. It refuses what nlohmann's parser accepts silently, and
// what would lead to a crash later.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace ladder {

/// The deepest nesting that is accepted: some code copies or prints JSON level by level.
constexpr int kMaxJsonDepth = 64;
/// The largest file that is read, in bytes.
constexpr int64_t kMaxJsonFile = int64_t{16} << 20;

/// @throws UserError that says what is wrong; the caller names the file. It may be malformed, have
/// more than kMaxJsonDepth levels, or have a key twice in an object
nlohmann::json parse_json(std::string_view text);

/// The JSON in a regular file of at most kMaxJsonFile bytes. @throws UserError that names the file
nlohmann::json read_json(const std::string& path);

/// A value for a file, or for another rank. Bytes that are not UTF-8, as a path may have them, are
/// replaced. @param indent blanks; -1: one line
std::string json_text(const nlohmann::json& value, int indent = -1);

/// A value in ASCII, for a message.
std::string shown(const nlohmann::json& value);

}  // namespace ladder
