// A text cut into words, lines and paragraphs, and what is counted of them. All counts are
// integers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/checksum.h"
#include "common/tokens/pair_map.h"
#include "common/tokens/unicode.h"

namespace ladder {

/// The fraction over / under, as two integers.
struct Ratio {
  int64_t over, under = 1;
};

inline bool ends_with_any(std::string_view text, const auto& ends) {
  return std::ranges::any_of(ends, [&](const char* one) { return text.ends_with(one); });
}
/// `text` with a to z for A to Z.
inline std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

/// `text` without the white space at both ends.
inline std::string_view trimmed(std::string_view text) {
  const auto is_space = [&](size_t at) { return char_at(text, at).kind == CharClass::Space; };
  while (!text.empty() && is_space(0)) text.remove_prefix(char_at(text, 0).bytes);
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (text[last] & 0xC0) == 0x80) --last;
    if (!is_space(last)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

/// The parts of `text` between runs of at least `newlines` line ends.
inline std::vector<std::string_view> between_newlines(std::string_view text, size_t newlines) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t run = std::min(text.find_first_not_of('\n', at), text.size()) - at;
    if (run >= newlines) {
      parts.push_back(text.substr(begin, at - begin));
      begin = at + run;
    }
    at += std::max<size_t>(run, 1);
  }
  parts.push_back(text.substr(begin));
  return parts;
}

/// Calls f(word, has_letter, has_number) for each word: what stands between white space.
template <class F>
void for_words(std::string_view text, F&& f) {
  size_t begin = 0;
  bool has_letter = false, has_number = false;
  for (size_t at = 0; at <= text.size();) {
    const Char c = char_at(text, at);
    if (c.kind == CharClass::Space || c.kind == CharClass::End) {
      if (begin < at) f(text.substr(begin, at - begin), has_letter, has_number);
      has_letter = has_number = false;
      begin = at + c.bytes;
    }
    has_letter |= c.kind == CharClass::Letter;
    has_number |= c.kind == CharClass::Number;
    at += std::max<size_t>(c.bytes, 1);
  }
}

/// Parts that have stood earlier in the same text: their number, and their characters.
struct Repeated {
  int64_t count = 0, characters = 0;
};
inline Repeated repeated(const std::vector<std::string_view>& parts) {
  Repeated found;
  std::unordered_set<std::string_view> met;
  for (const std::string_view part : parts) {
    if (met.insert(part).second) continue;
    ++found.count;
    found.characters += characters(part);
  }
  return found;
}

/// A text with its words and lines.
struct CutText {
  std::string_view text;
  int64_t characters;
  std::vector<std::string_view> words;
  std::vector<std::string_view> lines;  ///< a line end at the end of the text begins no further one
  int64_t real_words = 0;               ///< with a letter or a number
  int64_t real_characters = 0;          ///< of real words
  int64_t words_with_letter = 0;

  explicit CutText(std::string_view of) : text(of), characters(ladder::characters(of)) {
    for_words(text, [&](auto... word) { add_word(word...); });
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  int64_t word_count() const { return std::ssize(words); }
  int64_t line_count() const { return std::ssize(lines); }
  int64_t count(std::string_view what) const {
    int64_t found = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size())
      ++found;
    return found;
  }

  /// Of the n words in a row that are the most frequent: their characters, with n - 1 blanks
  /// between them, times their number. Of equally frequent ones the first counts.
  int64_t top_gram(size_t n) const {
    struct Gram {
      int64_t count = 0;
      size_t first = 0;
    };
    PairMap<Gram> grams(words.size());
    Gram top;
    for (size_t i = 0; i + n <= ids_.size(); ++i) {
      Gram& gram = grams[gram_hash(i, n)];
      if (gram.count++ == 0) gram.first = i;
      if (gram.count > top.count || (gram.count == top.count && gram.first < top.first)) top = gram;
    }
    const auto blanks = static_cast<int64_t>(n) - 1;
    return top.count == 0 ? 0 : top.count * (gram_characters(top.first, n) + blanks);
  }
  /// Characters of words within n words in a row that have stood earlier in the text. No word
  /// counts twice.
  int64_t repeated_grams(size_t n) const {
    PairMap<char> met(words.size());
    int64_t found = 0;
    for (size_t i = 0; i + n <= ids_.size();) {
      char& is_known = met[gram_hash(i, n)];
      if (is_known) found += gram_characters(i, n);
      i += is_known ? n : 1;
      is_known = 1;
    }
    return found;
  }

 private:
  // 63 bits, because a PairMap reserves the largest key of 64.
  uint64_t gram_hash(size_t i, size_t n) const {
    return hash64({reinterpret_cast<const char*>(&ids_[i]), n * sizeof(ids_[0])}) >> 1;
  }
  int64_t gram_characters(size_t i, size_t n) const { return ends_[i + n] - ends_[i]; }

  void add_word(std::string_view word, bool has_letter, bool has_number) {
    const int64_t size = ladder::characters(word);
    words.push_back(word);
    ids_.push_back(known_.emplace(word, static_cast<uint32_t>(known_.size())).first->second);
    ends_.push_back(ends_.back() + size);
    words_with_letter += has_letter;
    if (!has_letter && !has_number) return;
    ++real_words;
    real_characters += size;
  }

  std::unordered_map<std::string_view, uint32_t> known_;  ///< the id of each different word
  std::vector<uint32_t> ids_;                             ///< of all words, in their order
  std::vector<int64_t> ends_{0};                          ///< characters of words 0 to i - 1
};

}  // namespace ladder
