// JSON that anyone may have written: what nlohmann's parser takes in silence, or takes and leads to
// a crash later, is refused.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace ladder {

/// What is copied or printed level by level must not be as deep as its writer likes.
constexpr int kMaxJsonDepth = 64;
/// The longest file that is read, in bytes.
constexpr int64_t kMaxJsonFile = int64_t{16} << 20;

/// @throws UserError that says what is wrong, for the caller to name the file: malformed text, more
///         than kMaxJsonDepth levels, or a key twice in an object
nlohmann::json parse_json(std::string_view text);

/// The JSON in a regular file of at most kMaxJsonFile bytes. @throws UserError naming the file
nlohmann::json read_json(const std::string& path);

/// A value for a message, in ASCII.
std::string shown(const nlohmann::json& value);

}  // namespace ladder
