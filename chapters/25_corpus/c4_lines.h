// C4 deletes lines of a document before it judges it (arXiv 1910.10683, section 2.2). A line goes
// if
//
//   it has a word of more than 1,000 characters (the authors' code has this, but not their text)
//   it has fewer than 3 words
//   it does not end with . ? ! " or ', or it ends with ...
//   "javascript" stands in it
//   "privacy policy" stands in it, or another of kPolicies
//
// Markers of citations go from lines that stay. A line with "lorem ipsum" passes the last two
// tests, and one with { passes the last: rules.h removes the whole document for either.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "chapters/25_corpus/cut_text.h"

namespace ladder {

/// How many bytes the marker has that begins at `at`: [], [12], [edit], [citation needed]. 0: none.
inline size_t citation_bytes(std::string_view line, size_t at) {
  const std::string_view text = line.substr(at);
  if (!text.starts_with('[')) return 0;
  for (const std::string_view marker : {"[edit]", "[citation needed]"})
    if (text.starts_with(marker)) return marker.size();
  const size_t end = text.find_first_not_of("0123456789", 1);
  return end != std::string_view::npos && text[end] == ']' ? end + 1 : 0;
}
inline std::string without_citations(std::string_view line) {
  std::string left;
  for (size_t at = 0; at < line.size();) {
    const size_t bytes = citation_bytes(line, at);
    if (bytes == 0) left += line[at];
    at += std::max<size_t>(bytes, 1);
  }
  return left;
}

/// What C4 leaves of a text.
inline std::string c4_lines(std::string_view text) {
  constexpr int64_t kFewestWords = 3, kLongestWord = 1000;
  constexpr std::array kPolicies = {"terms of use", "privacy policy", "cookie policy",
                                    "uses cookies", "use of cookies", "use cookies"};
  std::string all;
  for (const std::string_view whole : between_newlines(text, 1)) {
    int64_t words = 0, longest = 0;
    for_words(whole, [&](std::string_view word, bool, bool) {
      ++words;
      longest = std::max(longest, characters(word));
    });
    if (words < kFewestWords || longest > kLongestWord) continue;
    const std::string line = without_citations(trimmed(whole));
    if (!ends_with_any(line, std::array{".", "?", "!", "\"", "'"}) || line.ends_with("..."))
      continue;
    const std::string lower = in_lower_case(line);
    const auto has = [&](const char* part) { return lower.find(part) != std::string::npos; };
    const bool goes = has("javascript") || (!has("{") && std::ranges::any_of(kPolicies, has));
    if (!goes || has("lorem ipsum")) all += line + '\n';
  }
  return std::string(trimmed(all));
}

}  // namespace ladder
