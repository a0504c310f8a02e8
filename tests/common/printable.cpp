// How foreign text is shown on a screen, and how much of it a message quotes.

#include "common/printable.h"

#include <string>

#include <gtest/gtest.h>

#include "common/error.h"

namespace ladder {
namespace {

std::string message(const UserError& e) { return e.what(); }

TEST(Printable, Utf8IsShownAsItIs) {
  for (const std::string text :
       {"plain ~", "\xc3\xa4\xc3\x9f", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xc2\xa0", ""})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatSteersATerminalIsEscaped) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("a\n\r\tb", "\n"), "a\n\\x0d\\x09b");
  EXPECT_EQ(printable(std::string("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x80\xc2\x9b\xc2\x9f"), "\\xc2\\x80\\xc2\\x9b\\xc2\\x9f");  // C1
}

TEST(Printable, WhatIsNoUtf8IsEscaped) {
  EXPECT_EQ(printable("\x80\x9b\xff"), "\\x80\\x9b\\xff");
  EXPECT_EQ(printable("\xc3"), "\\xc3");                             // cut off
  EXPECT_EQ(printable("\xc3("), "\\xc3(");                           // not continued
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // too long a form
  EXPECT_EQ(printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");           //
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half of a pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
}

TEST(Shortened, KeepsBothEnds) {
  EXPECT_EQ(shortened(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(shortened("abcdefghijklmnop", 11), "abc ... nop");
  std::string text;
  for (int i = 0; i < 300; ++i) text += "\xc3\xa4";
  const std::string cut = shortened(text);
  EXPECT_EQ(printable(cut), cut) << "no character is cut in two";
  EXPECT_LE(cut.size(), kQuoted);
}

TEST(UserError, QuotesAPartOfALongValue) {
  const std::string value = "begin" + std::string(40'000, '.') + "end";
  const std::string_view view = value;
  for (const std::string& text :
       {message(UserError("--data {}: no", value)), message(UserError("--data {}: no", view))}) {
    EXPECT_LE(text.size(), kQuoted + 20);
    EXPECT_TRUE(text.starts_with("--data begin..") && text.ends_with("end: no")) << text;
  }
  EXPECT_EQ(message(UserError("{}", value.c_str())), value) << "a message as it is";
  EXPECT_EQ(message(UserError("{} of {:>4}", 1, "x")), "1 of    x");
}

}  // namespace
}  // namespace ladder
