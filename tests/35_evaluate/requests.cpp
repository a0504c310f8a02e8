// What makes requests of texts, on numbers that were worked out by hand. Texts are tokens: "3 1 4".
#include "chapters/35_evaluate/requests.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/run/text_codec.h"

namespace ladder {
namespace {

using Tokens = std::vector<int32_t>;

class TextOfTokens : public ::testing::Test {
 protected:
  static constexpr int64_t kWindow = 4;

  Requests requests(PrefixOptions prefix = {}) const {
    if (!prefix.token) prefix.token = 99;
    return Requests(codec, prefix, kWindow);
  }
  static std::string text(const Request& request) {
    return fmt::format("{} | {}", fmt::join(request.tokens, " "), request.scored);
  }

  TextCodec codec{{.tokenizer = {}, .tokens = TextTokens::Ids, .stop = {}}, "", 100};
};

TEST_F(TextOfTokens, TheContinuationIsScored) {
  EXPECT_EQ(text(requests().pair("1 2", " 3")), "1 2 3 | 1");
  EXPECT_EQ(text(requests().pair("1 2 ", "3 4")), "1 2 3 4 | 2");
  // The last window + 1 tokens are left, whatever of the context that costs.
  EXPECT_EQ(text(requests().pair("1 2 3 4", " 5 6")), "2 3 4 5 6 | 2");
  EXPECT_EQ(text(requests().pair("1 2", " 3 4 5 6")), "2 3 4 5 6 | 4");
  EXPECT_THROW(requests().pair("1", " 2 3 4 5 6"), UserError);
  EXPECT_THROW(requests().pair("1", " "), UserError);
}

TEST_F(TextOfTokens, AnEmptyContextIsThePrefix) {
  EXPECT_EQ(text(requests().pair("", "1 2")), "99 1 2 | 2");
  EXPECT_EQ(text(requests().pair(" \n", "1 2")), "99 1 2 | 2");
  EXPECT_EQ(text(requests().pair("", "99 1 2")), "99 1 2 | 2");
  EXPECT_THROW(requests().pair("", "99"), UserError);
}

TEST_F(TextOfTokens, ThePrefixBeforeEveryText) {
  const Requests bos = requests({.token = 99, .always = true});
  EXPECT_EQ(text(bos.pair("1 2", " 3")), "99 1 2 3 | 1");
  EXPECT_EQ(text(bos.pair("99 1", " 3")), "99 1 3 | 1");
  EXPECT_EQ(text(bos.pair("", "3")), "99 3 | 1");
  EXPECT_EQ(bos.prompt("1 2", 1), Tokens({99, 1, 2}));
  EXPECT_THROW(requests({.token = 100, .always = false}), UserError);
}

/// Each token is scored once. The last window has as much context as it can.
TEST_F(TextOfTokens, Windows) {
  std::vector<std::string> all;
  for (const Request& one : requests().windows("0 1 2 3 4 5 6 7 8 9")) all.push_back(text(one));
  EXPECT_EQ(all, std::vector<std::string>({"99 0 1 2 3 | 4", "3 4 5 6 7 | 4", "5 6 7 8 9 | 2"}));
  EXPECT_EQ(text(requests().windows("0 1 2 3").at(0)), "99 0 1 2 3 | 4");
  EXPECT_EQ(requests().windows("0 1 2 3").size(), 1u);
  EXPECT_EQ(text(requests().windows("7").at(0)), "99 7 | 1");
  EXPECT_TRUE(requests().windows("").empty());
}

TEST_F(TextOfTokens, PromptsLeaveRoom) {
  EXPECT_EQ(requests().prompt("1 2 3 4 5", 1), Tokens({3, 4, 5}));
  EXPECT_EQ(requests().prompt("1 2", 1), Tokens({1, 2}));
  EXPECT_EQ(requests().prompt("", 1), Tokens({99}));
}

/// As Python's str.rstrip: also blanks that are not ASCII, and separators of ASCII.
TEST(Blanks, AtTheEnd) {
  EXPECT_EQ(without_blanks("ab  "), 2u);
  EXPECT_EQ(without_blanks(" a\t\n\r\f\v"), 2u);
  EXPECT_EQ(without_blanks("a\xc2\xa0\xe3\x80\x80 \x1f\x1c"), 1u);
  EXPECT_EQ(without_blanks("a\xe2\x80\x8b"), 4u);  // a blank of no width is none
  EXPECT_EQ(without_blanks(" \n"), 0u);
  EXPECT_EQ(without_blanks(""), 0u);
}

/// What lies where, in rows.
TEST(File, ScoredPositions) {
  RequestFile file;
  file.add({{1, 2, 3, 4}, 2}, 0, 0);
  file.add({{5, 6}, 1}, 0, 1);
  file.add({{7, 8, 9}, 2}, 1, 0);
  EXPECT_EQ(file.scored_in({0, 2}), std::vector<Range>({{1, 3}, {3, 5}}));
  EXPECT_EQ(file.scored_in({1}), std::vector<Range>({{0, 1}}));
  Tokens read(3);
  file.read(file.pieces[2].begin, read);
  EXPECT_EQ(read, Tokens({7, 8, 9}));
  EXPECT_EQ(file.pieces_of({2}).at(0).length, 2);
}

}  // namespace
}  // namespace ladder
