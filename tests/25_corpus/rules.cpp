// Each rule keeps a text at its threshold, and removes one that is a little beyond.
#include "chapters/25_corpus/rules.h"

#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace ladder::test {
namespace {

std::string times(int n, const std::string& text) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}
/// n words of four letters, all different, with a blank behind each.
std::string words(int n) {
  std::string all;
  for (int i = 0; i < n; ++i)
    all += {static_cast<char>('a' + i / 676 % 26), static_cast<char>('a' + i / 26 % 26),
            static_cast<char>('a' + i % 26), 'x', ' '};
  return all;
}

/// By "set.rule": a text at the threshold, and one beyond it.
struct Texts {
  std::string kept, removed;
};
const std::map<std::string, Texts>& texts() {
  // 8 distinct lines and 2 paragraphs or more that repeat the first one.
  const auto blocks = [](int others, int again, const std::string& gap) {
    std::string all = "one two" + gap;
    for (int i = 0; i < again; ++i) all += "one two" + gap;
    for (int i = 0; i < others; ++i)
      all += words(900).substr(static_cast<size_t>(i) * 60, 59) + gap;
    return all.substr(0, all.size() - gap.size());
  };
  const std::string full = "This line has words and ends here.\n";
  static const std::map<std::string, Texts> all = {
      {"gopher.few_words", {words(50), words(49) + "- -"}},
      {"gopher.many_words", {words(100000), words(100001)}},
      {"gopher.short_words", {times(60, "abc "), times(60, "abc ") + "ab"}},
      {"gopher.long_words", {times(60, "abcdefghij "), times(60, "abcdefghij ") + "abcdefghijk"}},
      {"gopher.hashes", {words(90) + times(10, "# "), words(90) + times(10, "# ") + "#a"}},
      {"gopher.ellipses", {words(95) + "... … a... a… a…", words(26) + "... … …"}},
      {"gopher.bullets", {times(9, "• a\n") + "a", times(10, " - a\n") + "a"}},
      {"gopher.ellipsis_lines",
       {times(3, "a...\n") + times(7, "b\n"), times(4, "a… \n") + times(9, "b\n")}},
      {"gopher.no_letters", {words(80) + times(20, "12 "), words(79) + times(20, "12 ")}},
      {"gopher.stop_words", {words(9) + "the that", words(9) + "the The the"}},
      {"repetition.paragraphs", {blocks(6, 3, "\n\n"), blocks(8, 4, "\n\n\n")}},
      {"repetition.paragraph_characters", {"abcd\n\nabcdefgh\n\nabcd", "abcd\n\nabcdefg\n\nabcd"}},
      {"repetition.lines", {blocks(6, 3, "\n"), blocks(8, 4, "\n")}},
      {"repetition.line_characters", {"abcd\nabcdefghij\nabcd", "abcd\nabcdefghi\nabcd"}},
      {"repetition.top_2_gram",
       {words(8).substr(1) + "ab cd ab cd", words(8).substr(2) + "ab cd ab cd"}},
      {"repetition.5_grams",
       {words(29) + times(2, "ab cd ef gh ij "), words(5) + times(2, "ab cd ef gh ij ")}},
      {"repetition.10_grams", {words(200) + times(2, words(9) + "zz "), times(2, words(10))}},
      {"c4.lorem_ipsum",
       {times(5, full) + "Lorem  ipsum is here.\nLorem ipsum", full + "It is LOREM IPSUM here."}},
      {"c4.braces",
       {times(5, full) + "a {\nIn javascript { we say.", times(5, full) + "A { in it."}},
      {"c4.sentences",
       {times(4, full) + "It is \"so!\" And no more'",
        times(4, full) + "so it is\nSo is.\nTerms of use are so."}},
      {"fineweb.punctuation",
       {times(3, full) + times(22, "a\n"), times(3, full) + times(23, "\na")}},
      {"fineweb.short_lines",
       {times(33, words(7) + "\n") + times(67, times(30, "a") + "\n"),
        words(7) + times(3, "\n" + times(30, "é"))}},
      {"fineweb.repeated_lines", {"a\na\n" + times(98, "b"), "a\na\n" + times(97, "b")}},
      {"fineweb.lists", {times(7, "a ") + "\na\na\na", times(6, "a ") + "\na\na\na"}}};
  return all;
}

const Rule& rule_of(const std::string& name) {
  return *std::ranges::find_if(kRules, [&](const Rule& rule) { return name_of(rule) == name; });
}

TEST(Rules, KeepATextAtTheThresholdAndRemoveOneBeyondIt) {
  for (const auto& [name, both] : texts()) {
    const Rule& rule = rule_of(name);
    for (const bool kept : {true, false}) {
      const std::string text = without_lines(std::array{rule.set}, kept ? both.kept : both.removed);
      const Ratio is = rule.measure(CutText(text));
      EXPECT_EQ(rule.keeps(CutText(text)), kept) << name << " " << is.over << " / " << is.under;
    }
  }
}

// tests/clients/test_corpus.py has datatrove's verdict on each mark.
TEST(Rules, PunctuationIsThatOfManyScripts) {
  int64_t marks = 0;
  for (const auto& [first, last] : kSentenceEnds) marks += last - first + 1;
  EXPECT_EQ(marks, 159);
  for (const char* end :
       {"\u0964", "\u061f", "\u06d4", "\u0589", "\u1362", "\u3002", "\U0001da88", "."})
    EXPECT_TRUE(ends_with_punctuation(std::string("a") + end)) << end;
  for (const char* end : {"", "a", ",", ":", "\u2026", "\"", "\xFF"})
    EXPECT_FALSE(ends_with_punctuation(end)) << end;
}

TEST(Rules, AreAskedInTheOrderOfTheSets) {
  std::string text = "{ is a brace.";
  EXPECT_EQ(name_of(*broken_rule(std::array{RuleSet::C4, RuleSet::Gopher}, text)), "c4.braces");
  EXPECT_EQ(name_of(*broken_rule(std::array{RuleSet::Gopher, RuleSet::C4}, text)),
            "gopher.few_words");
  EXPECT_EQ(broken_rule({}, text), nullptr);
}

TEST(Rules, JudgeWhatC4HasLeft) {
  std::string full;
  for (size_t i = 0; i < 6; ++i) full += (i == 0 ? "" : "\n") + words(99).substr(60 * i, 59) + ".";
  const std::string menu = times(60, "Home\n");
  std::string text = menu + full;
  EXPECT_EQ(name_of(*broken_rule(std::array{RuleSet::FineWeb}, text)), "fineweb.punctuation");
  EXPECT_EQ(text, menu + full);
  EXPECT_EQ(broken_rule(std::array{RuleSet::C4, RuleSet::FineWeb}, text), nullptr);
  EXPECT_EQ(text, full);
}

TEST(C4, DeletesLinesAndCitations) {
  for (const char* line :
       {"two words.", "no full stop", "and so on...", "and so on…", "it is JavaScript code.",
        "our Privacy Policy is long.", "it is so. [1]"})
    EXPECT_EQ(c4_lines(line), "");
  for (const char* line : {"and so \"on\"", "and so on'", "who is it?", "what a day!",
                           "our Privacy Policy {is} long.", "lorem ipsum in Javascript."})
    EXPECT_EQ(c4_lines(line), line);
  const std::string longest = "a b " + std::string(999, 'c') + ".";
  EXPECT_EQ(c4_lines(longest + "\n\n\n" + "a b c" + longest.substr(4)), longest);
  EXPECT_EQ(c4_lines("\n [1] it is[] so[edit] [x].\u00A0\n\n and here[citation needed].\t"),
            "it is so [x].\nand here.");
}

TEST(Rules, DivideByNothing) {
  for (const char* text : {"", " ", "\n", "\n\n", "a", "…", "-\n-", "#", "\xE3\x80\x80"})
    for (const Rule& rule : kRules)
      EXPECT_GE(rule.measure(CutText(text)).under, 0) << name_of(rule) << " of '" << text << "'";
}

TEST(CutTexts, CountCharactersWordsAndLines) {
  const CutText text("  Zwölf\u00A0Boxk\u00E4mpfer\tjagen 12 …\n\n ");
  EXPECT_EQ(text.word_count(), 5);
  EXPECT_EQ(text.real_words, 4);
  EXPECT_EQ(text.words_with_letter, 3);
  EXPECT_EQ(text.real_characters, 5 + 10 + 5 + 2);
  EXPECT_EQ(text.line_count(), 3);
  EXPECT_EQ(trimmed("\u3000 a b\u00A0\n"), "a b");
  EXPECT_EQ(trimmed(" \u00A0"), "");
  EXPECT_EQ(between_newlines("a\n\nb\n\n\nc\nd", 2),
            (std::vector<std::string_view>{"a", "b", "c\nd"}));
  EXPECT_EQ(between_newlines("\na\n", 1), (std::vector<std::string_view>{"", "a", ""}));
}

}  // namespace
}  // namespace ladder::test
