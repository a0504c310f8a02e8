// Rules that a document must keep: a table with a row for each. A rule compares integers, so that
// no rounding decides and nothing is divided by 0: over / under <= 0.1 is 10 over <= under.
//
//   Gopher    Rae et al., arXiv 2112.11446, table A1 and section A.1.1
//   C4        Raffel et al., arXiv 1910.10683, section 2.2
//   FineWeb   Penedo et al., arXiv 2406.17557, section 3.6
//
// --filter gopher takes the rules of section A.1.1 on length, symbols and stop words; repetition
// takes those of table A1. C4's judge what c4_lines.h leaves of a text, and so do the sets that
// follow it. All were made for English, and none asks for the language of a text.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chapters/25_corpus/c4_lines.h"
#include "chapters/25_corpus/cut_text.h"
#include "common/names.h"
#include "common/run/command_line.h"

namespace ladder {

enum class RuleSet : uint8_t { Gopher, Repetition, C4, FineWeb };
constexpr auto names_of(RuleSet) { return std::array{"gopher", "repetition", "c4", "fineweb"}; }

// ---- what the rules count -----------------------------------------------------------------------

/// How many of these eight words the text has.
inline int64_t stop_words(const CutText& text) {
  constexpr std::array<std::string_view, 8> kStopWords = {"the", "be",   "to",   "of",
                                                          "and", "that", "have", "with"};
  return std::ranges::count_if(kStopWords, [&](std::string_view stop) {
    return std::ranges::find(text.words, stop) != text.words.end();
  });
}
inline bool starts_with_bullet(std::string_view line) {
  return trimmed(line).starts_with("•") || trimmed(line).starts_with('-');
}
inline bool ends_with_ellipsis(std::string_view line) {
  return ends_with_any(trimmed(line), std::array{"...", "…"});
}

inline Repeated repeated_paragraphs(const CutText& text) {
  return repeated(between_newlines(trimmed(text.text), 2));
}
inline Repeated repeated_lines(const CutText& text) {
  return repeated(between_newlines(text.text, 1));
}
template <size_t kWords>
Ratio top_gram(const CutText& text) {
  return {text.top_gram(kWords), text.characters};
}
template <size_t kWords>
Ratio repeated_grams(const CutText& text) {
  return {text.repeated_grams(kWords), text.characters};
}

/// How many sentences a text has. A word ends one if it ends with . ? or ! (quotes may follow), or
/// if it is the last of a line.
inline int64_t sentences(const CutText& text) {
  const std::string_view all = text.text;
  int64_t ends = 0;
  for (std::string_view word : text.words) {
    const size_t end = static_cast<size_t>(word.data() - all.data()) + word.size();
    while (word.ends_with('"') || word.ends_with('\'')) word.remove_suffix(1);
    ends += end == all.size() || all[end] == '\n' || ends_with_any(word, std::array{".", "?", "!"});
  }
  return ends;
}

/// Lines that are not blank, as FineWeb counts them.
inline std::vector<std::string_view> full_lines(const CutText& text) {
  std::vector<std::string_view> lines = text.lines;
  std::erase_if(lines, [](std::string_view line) { return trimmed(line).empty(); });
  return lines;
}
inline Ratio full_lines_that(const CutText& text, bool (*is_one)(std::string_view)) {
  const std::vector<std::string_view> lines = full_lines(text);
  return {std::ranges::count_if(lines, is_one), std::ssize(lines)};
}
/// Marks that end a sentence in some script, as first and last of a range: nearly those that
/// Unicode calls Sentence_Terminal. FineWeb's are these in datatrove 0.10.1.
inline constexpr char32_t kSentenceEnds[][2] = {
#include "chapters/25_corpus/sentence_ends.inc"
};
inline bool ends_with_punctuation(std::string_view line) {
  if (line.empty()) return false;
  size_t last = line.size() - 1;
  while (last > 0 && (line[last] & 0xC0) == 0x80) --last;
  const char32_t code = char_at(line, last).code;
  return std::ranges::any_of(
      kSentenceEnds, [&](const auto& range) { return range[0] <= code && code <= range[1]; });
}

// ---- the table ----------------------------------------------------------------------------------

enum class Bound : uint8_t { AtLeast, AtMost };

struct Rule {
  RuleSet set;
  const char* name;
  Ratio (*measure)(const CutText&);
  Bound bound;
  Ratio threshold;

  bool keeps(const CutText& text) const {
    const Ratio is = measure(text);
    const int64_t left = is.over * threshold.under, right = threshold.over * is.under;
    return bound == Bound::AtLeast ? left >= right : left <= right;
  }
};

namespace rule_table {
using enum RuleSet;
using enum Bound;
using Cut = const CutText&;
// clang-format off
inline constexpr Rule kRules[] = {
  {Gopher, "few_words",
   [](Cut t) { return Ratio{t.real_words}; }, AtLeast, {50}},
  {Gopher, "many_words",
   [](Cut t) { return Ratio{t.real_words}; }, AtMost, {100000}},
  {Gopher, "short_words",
   [](Cut t) { return Ratio{t.real_characters, t.real_words}; }, AtLeast, {3}},
  {Gopher, "long_words",
   [](Cut t) { return Ratio{t.real_characters, t.real_words}; }, AtMost, {10}},
  {Gopher, "hashes",
   [](Cut t) { return Ratio{t.count("#"), t.word_count()}; }, AtMost, {1, 10}},
  {Gopher, "ellipses",
   [](Cut t) { return Ratio{t.count("...") + t.count("…"), t.word_count()}; }, AtMost, {1, 10}},
  {Gopher, "bullets",
   [](Cut t) { return Ratio{std::ranges::count_if(t.lines, starts_with_bullet), t.line_count()}; }, AtMost, {9, 10}},
  {Gopher, "ellipsis_lines",
   [](Cut t) { return Ratio{std::ranges::count_if(t.lines, ends_with_ellipsis), t.line_count()}; }, AtMost, {3, 10}},
  {Gopher, "no_letters",
   [](Cut t) { return Ratio{t.words_with_letter, t.word_count()}; }, AtLeast, {8, 10}},
  {Gopher, "stop_words",
   [](Cut t) { return Ratio{stop_words(t)}; }, AtLeast, {2}},

  {Repetition, "paragraphs",
   [](Cut t) { return Ratio{repeated_paragraphs(t).count, std::ssize(between_newlines(trimmed(t.text), 2))}; },
   AtMost, {3, 10}},
  {Repetition, "paragraph_characters",
   [](Cut t) { return Ratio{repeated_paragraphs(t).characters, t.characters}; }, AtMost, {2, 10}},
  {Repetition, "lines",
   [](Cut t) { return Ratio{repeated_lines(t).count, std::ssize(between_newlines(t.text, 1))}; },
   AtMost, {3, 10}},
  {Repetition, "line_characters",
   [](Cut t) { return Ratio{repeated_lines(t).characters, t.characters}; }, AtMost, {2, 10}},
  {Repetition, "top_2_gram", top_gram<2>, AtMost, {20, 100}},
  {Repetition, "top_3_gram", top_gram<3>, AtMost, {18, 100}},
  {Repetition, "top_4_gram", top_gram<4>, AtMost, {16, 100}},
  {Repetition, "5_grams", repeated_grams<5>, AtMost, {15, 100}},
  {Repetition, "6_grams", repeated_grams<6>, AtMost, {14, 100}},
  {Repetition, "7_grams", repeated_grams<7>, AtMost, {13, 100}},
  {Repetition, "8_grams", repeated_grams<8>, AtMost, {12, 100}},
  {Repetition, "9_grams", repeated_grams<9>, AtMost, {11, 100}},
  {Repetition, "10_grams", repeated_grams<10>, AtMost, {10, 100}},

  {C4, "lorem_ipsum",
   [](Cut t) { return Ratio{in_lower_case(t.text).find("lorem ipsum") != std::string::npos}; }, AtMost, {0}},
  {C4, "braces", [](Cut t) { return Ratio{t.count("{")}; }, AtMost, {0}},
  {C4, "sentences", [](Cut t) { return Ratio{sentences(t)}; }, AtLeast, {5}},

  {FineWeb, "punctuation",
   [](Cut t) { return full_lines_that(t, ends_with_punctuation); }, AtLeast, {12, 100}},
  {FineWeb, "short_lines",
   [](Cut t) { return full_lines_that(t, [](std::string_view l) { return characters(l) <= 30; }); },
   AtMost, {67, 100}},
  {FineWeb, "repeated_lines",
   [](Cut t) { return Ratio{repeated(full_lines(t)).characters, t.characters - t.count("\n")}; },
   AtMost, {1, 100}},
  {FineWeb, "lists",
   [](Cut t) { return Ratio{t.count("\n"), t.word_count()}; }, AtMost, {3, 10}},
};
// clang-format on
}  // namespace rule_table
using rule_table::kRules;

/// "gopher.few_words"
inline std::string name_of(const Rule& rule) {
  return std::string(to_string(rule.set)) + "." + rule.name;
}

/// Judges a text by these sets, one after the other, and changes it as they do.
/// @return the first rule that it breaks; nullptr: none
inline const Rule* broken_rule(std::span<const RuleSet> sets, std::string& text) {
  std::optional<CutText> cut;
  for (const RuleSet set : sets) {
    if (set == RuleSet::C4) {
      text = c4_lines(text);
      cut.reset();
    }
    if (!cut) cut.emplace(text);
    for (const Rule& rule : kRules)
      if (rule.set == set && !rule.keeps(*cut)) return &rule;
  }
  return nullptr;
}
/// What these sets leave of a text that breaks no rule.
inline std::string without_lines(std::span<const RuleSet> sets, std::string text) {
  return std::ranges::count(sets, RuleSet::C4) > 0 ? c4_lines(text) : text;
}

}  // namespace ladder
