// Documents in parts: no byte lost, none cut where a piece or a special token goes on.
#include "common/tokens/documents.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/tokens/split.h"
#include "tests/24_tokenizer/texts.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

/// The documents, put together again, and how many parts they came in.
std::vector<std::string> whole(Documents documents, int64_t* parts = nullptr) {
  std::vector<std::string> all;
  std::string open;
  TextPart part;
  for (; documents.next(part); parts && ++*parts) {
    size_t begin = 0;
    for (const size_t end : part.ends) {
      all.push_back(open + part.text.substr(begin, end - begin));
      open.clear();
      begin = end;
    }
    open += part.text.substr(begin);
  }
  EXPECT_EQ(open, "");
  return all;
}

std::string long_text(uint64_t seed, size_t bytes) {
  test::Texts texts(seed);
  std::string text;
  while (text.size() < bytes) text += texts.next();
  return text;
}

TEST(TokenDocuments, ComeWholeInBoundedChunks) {
  const TempDir home;
  const std::string a = long_text(1, 3'500'000), b = "short", c(2'500'000, 'a');
  write_file(home / "a", a);
  write_file(home / "b", b);
  write_file(home / "empty", "");
  write_file(home / "c", c);
  int64_t parts = 0;
  EXPECT_EQ(whole({{home / "a", home / "b", home / "empty", home / "c"}, Utf8::Bytes}, &parts),
            (std::vector<std::string>{a, b, c}));
  EXPECT_GE(parts, 4);
  TextPart part;
  Documents again({home / "a"}, Utf8::Bytes);
  while (again.next(part)) EXPECT_LT(part.text.size(), 3U << 20);
}

TEST(TokenDocuments, LinesOfJson) {
  const TempDir home;
  std::string lines;
  std::vector<std::string> wanted;
  for (int i = 0; i < 3000; ++i) {
    std::string text = "document " + std::to_string(i) + "\n" + std::string(i % 1000, 'x');
    lines += R"({"id": 1, "text": )" + nlohmann::json(text).dump() + "}\n" + (i % 7 ? "" : "\n");
    wanted.push_back(std::move(text));
  }
  lines += R"({"text": ""})"
           "\n"
           R"({"text": "last"})";
  wanted.emplace_back("last");
  write_file(home / "a.jsonl", lines);
  EXPECT_EQ(whole({{home / "a.jsonl"}, Utf8::Refuse}), wanted);
  wanted.insert(wanted.begin(), "first");
  write_file(home / "a", "first");
  EXPECT_EQ(whole({{home / "a", home / "a.jsonl"}, Utf8::Refuse}), wanted);
}

TEST(TokenDocuments, NoSpecialTokenIsCut) {
  const TempDir home;
  const std::string special = "<|endoftext|>";
  // Its last letter is the last place at which the first part could be cut.
  for (const size_t before : {1000U, (1U << 20) - 3000U, (1U << 20) - 30U}) {
    const std::string text = std::string(before, 'a') + special + std::string(2 << 20, '!') + "b c";
    write_file(home / "a", text);
    Documents documents({home / "a"}, Utf8::Refuse, {special, "text"});
    TextPart part;
    ASSERT_TRUE(documents.next(part));
    EXPECT_TRUE(part.ends.empty());
    EXPECT_EQ(part.text, text.substr(0, before)) << before;
    EXPECT_EQ(whole({{home / "a"}, Utf8::Refuse, {special, "text"}}), std::vector{text});
  }
}

// The second token is found first, so that the first is none and three marks are one piece.
TEST(TokenDocuments, AHiddenTokenIsNoPlaceToCut) {
  const TempDir home;
  const std::string begin(1000, 'a');
  write_file(home / "a", begin + "!!!<t>" + std::string(2 << 20, '!'));
  Documents documents({home / "a"}, Utf8::Refuse, {"!<", "<t>"});
  TextPart part;
  ASSERT_TRUE(documents.next(part));
  EXPECT_EQ(part.text, begin);
}

// What this program refuses, chapter 25 refuses, and the other way round: both read with one
// function.
TEST(TokenDocuments, MayHoldWhatNobodyReads) {
  const TempDir home;
  const std::string deep = std::string(63, '[') + std::string(63, ']');
  const std::string legal =
      R"({"text":"a","meta":{"k":1,"k":2},"id":123456789012345678901234567890})"
      "\n{\"text\":\"c\",\"meta\":" +
      deep + "}\n";
  write_file(home / "a.jsonl", legal);
  EXPECT_EQ(whole({{home / "a.jsonl"}, Utf8::Refuse}), (std::vector<std::string>{"a", "c"}));
  write_file(home / "a.jsonl", legal + "{\"text\":\"b\",\"meta\":[" + deep + "]}\n");
  EXPECT_USER_ERROR(whole({{home / "a.jsonl"}, Utf8::Refuse}),
                    "a.jsonl: line 3: nested deeper than 64 levels");
}

TEST(TokenDocuments, BadBytesAreNamed) {
  const TempDir home;
  const auto refused = [&](const std::string& text, const std::string& says) {
    write_file(home / "a", text);
    EXPECT_EQ(whole({{home / "a"}, Utf8::Bytes}), std::vector{text});
    EXPECT_USER_ERROR(whole({{home / "a"}, Utf8::Refuse}), says);
  };
  refused("abc\xFF", "byte 3 is not valid UTF-8; --utf8 bytes");
  refused("\u00e9\xC3", "byte 2 is not");        // begun and not ended
  refused("\xED\xA0\x80", "byte 0 is not");      // half of a surrogate
  refused("a\xC0\x80", "byte 1 is not");         // longer than it has to be
  refused("\xF4\x90\x80\x80", "byte 0 is not");  // behind the last character
  const std::string text = std::string((1 << 20) - 1, 'a') + "\u00e9";
  refused(text + "\xFFx", fmt::format("byte {} is not", text.size()));
  write_file(home / "a", text);  // a character across two reads is none
  EXPECT_EQ(whole({{home / "a"}, Utf8::Refuse}), std::vector{text});
  write_file(home / "a.jsonl", "{\"text\": \"x\"}\n{\"text\": \"\xFF\"}\n");
  EXPECT_USER_ERROR(whole({{home / "a.jsonl"}, Utf8::Refuse}), "line 2: malformed JSON");
  EXPECT_USER_ERROR(whole({{home / "none"}, Utf8::Refuse}), "no such file");
}

}  // namespace
}  // namespace ladder
