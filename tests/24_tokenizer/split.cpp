// Where the three patterns cut, and that a text may be cut where last_cut() says.
#include "common/tokens/split.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/24_tokenizer/texts.h"

namespace ladder {
namespace {

/// The pieces of a text with bars between them.
std::string pieces(Split split, std::string_view text) {
  std::string all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(split, text, begin);
    if (begin > 0) all += '|';
    all += text.substr(begin, end - begin);
    begin = end;
  }
  return all;
}

struct Case {
  std::string_view text, gpt2, llama3, cl100k;
};
const Case kCases[] = {
    // The space before a word belongs to it; of several the last one does.
    {"a  b", "a| | b", "a| | b", "a| | b"},
    {"a\tb", "a|\t|b", "a|\tb", "a|\tb"},
    {"a \u00a0b", "a| |\u00a0|b", "a| |\u00a0b", "a| |\u00a0b"},
    {" 12345", " 12345", " |123|45", " |123|45"},
    {"it's IT'S '\u017fx", "it|'s| IT|'|S| '|\u017fx", "it|'s| IT|'S| '|\u017fx",
     "it|'s| IT|'S| '|\u017fx"},
    {"'\u017fx'llama", "'|\u017fx|'ll|ama", "'\u017f|x|'ll|ama", "'\u017f|x|'ll|ama"},
    {"!x !!\n\nx", "!|x| !!|\n|\n|x", "!x| !!\n\n|x", "!x| !!\n\n|x"},
    // The end of a text.
    {"a\n  ", "a|\n  ", "a|\n|  ", "a|\n  "},
    {"a\n  b", "a|\n | b", "a|\n| | b", "a|\n| | b"},
    {"\n \r\n x", "\n \r\n| x", "\n \r\n| x", "\n \r\n| x"},
    // A number that is no digit; a mark that is no letter; a byte that is no character.
    {"\u00bda\u0301b", "\u00bd|a|\u0301|b", "\u00bd|a|\u0301b", "\u00bd|a|\u0301b"},
    {"a\xFF"
     "b\xC3",
     "a|\xFF|b|\xC3",
     "a|\xFF"
     "b|\xC3",
     "a|\xFF"
     "b|\xC3"},
    // Letters since Unicode 16; unassigned before.
    {"\u1c89a", "\u1c89a", "\u1c89a", "\u1c89a"}};

TEST(TokenSplit, PiecesOfThePatterns) {
  for (const Case& c : kCases) {
    EXPECT_EQ(pieces(Split::Gpt2, c.text), c.gpt2);
    EXPECT_EQ(pieces(Split::Llama3, c.text), c.llama3);
    EXPECT_EQ(pieces(Split::Cl100k, c.text), c.cl100k);
  }
}

TEST(TokenSplit, ATextMayBeCut) {
  test::Texts texts(1);
  int64_t cuts = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::string text = texts.next();
    const size_t cut = last_cut(text);
    ASSERT_TRUE(cut == 0 || cut < text.size());
    if (cut == 0) continue;
    ++cuts;
    for (const Split split : {Split::Gpt2, Split::Llama3, Split::Cl100k})
      ASSERT_EQ(pieces(split, text.substr(0, cut)) + "|" + pieces(split, text.substr(cut)),
                pieces(split, text));
  }
  EXPECT_GT(cuts, 1000);
}

}  // namespace
}  // namespace ladder
