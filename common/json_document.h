// A document as a line of JSON: {"text": "...", "id": "...", "source": "..."}. Other fields are
// ignored.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ladder {

/// What is read of a line.
struct JsonDocument {
  std::string text;
  std::string id;             ///< a string or a whole number; empty: there is none
  std::string source;         ///< empty: there is none
  size_t begin = 0, end = 0;  ///< where in the line the text stands, with its quotes
};

/// Reads one line. Only these three fields are checked: in an object that is the value of another
/// field, a key may stand twice.
/// @return what is wrong with the line; empty if nothing is wrong
std::string read_document(std::string_view line, JsonDocument& document);

}  // namespace ladder
