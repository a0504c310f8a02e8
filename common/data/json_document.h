// A document as a line of JSON: {"text": "...", "id": "...", "source": "..."}, and whatever else.
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
  size_t begin = 0, end = 0;  ///< of the text in the line, its quotes included
};

/// Reads one line. The parser keeps nothing but these three values.
/// @return what is wrong with the line; empty: nothing is
std::string read_document(std::string_view line, JsonDocument& document);

}  // namespace ladder
