// Merges by rank, for short pieces and for long ones; the cache; special tokens; all bytes back.
#include "common/tokens/encoder.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/24_tokenizer/trainer.h"
#include "common/error.h"
#include "common/tokens/tokenizer_files.h"
#include "tests/24_tokenizer/texts.h"

namespace ladder {
namespace {

using test::with_merges;
using Ids = std::vector<uint32_t>;

/// The tokens of a text, with bars between them.
std::string tokens(const Tokenizer& tokenizer, std::string_view text, bool allow_special = false) {
  Ids ids;
  Encoder(tokenizer, allow_special).encode(text, ids);
  std::string all;
  for (const uint32_t id : ids) all += (all.empty() ? "" : "|") + tokenizer.tokens[id];
  return all;
}

TEST(TokenEncoder, LowestRankFirst) {
  const Tokenizer t = with_merges({{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"a", "a"}, {"aa", "a"}});
  EXPECT_EQ(tokens(t, "abc"), "abc");
  EXPECT_EQ(tokens(t, "abd"), "ab|d");
  EXPECT_EQ(tokens(t, "aaaa"), "aa|aa");
  EXPECT_EQ(tokens(t, "aaaaa"), "aa|aaa");
}

/// A tokenizer of random texts, of one word each so that tokens cross all kinds of characters.
Tokenizer trained(uint64_t seed) {
  test::Texts texts(seed);
  std::vector<WordCount> words;
  for (int i = 0; i < 200; ++i) words.push_back({texts.next(), 1});
  words.push_back({std::string(100, 'a'), 3});
  Vocabulary vocabulary(Ties::Hf, 600);
  FastTrainer(words, vocabulary).train();
  Tokenizer t;
  t.tokens = vocabulary.tokens();
  t.merges = vocabulary.merges();
  return t;
}

TEST(TokenEncoder, ShortAndLongAgree) {
  test::Texts texts(5);
  for (const uint64_t seed : {7, 8}) {
    const Tokenizer t = trained(seed);
    // Ranks that several merges share, as in files of tiktoken; and merges in any order.
    Tokenizer shared = t, shuffled = t;
    for (Merge& m : shared.merges) m.rank = m.rank / 3;
    for (Merge& m : shuffled.merges) m.rank = m.rank * 7919U % 1009U;
    for (const Tokenizer* one :
         {&t, const_cast<const Tokenizer*>(&shared), const_cast<const Tokenizer*>(&shuffled)}) {
      const MergeTable merges(*one);
      for (int i = 0; i < 500; ++i) {
        Ids a;
        for (const char c : texts.next() + std::string(texts.below(40), 'a'))
          a.push_back(merges.byte(c));
        Ids b = a;
        merge_short(merges, a);
        merge_long(merges, b);
        ASSERT_EQ(a, b);
      }
    }
  }
}

TEST(TokenEncoder, TheCacheChangesNothing) {
  const Tokenizer t = trained(9);
  test::Texts texts(10);
  Encoder kept(t);
  for (int i = 0; i < 300; ++i) {
    const std::string text = texts.next();
    Ids a, b;
    kept.encode(text, a);
    Encoder(t).encode(text, b);
    ASSERT_EQ(a, b);
  }
  // More pieces than it holds, which all come again; two that differ in a zero at the end alone.
  Encoder crowded(t);
  std::string many;
  for (int i = 0; i < 200'000; ++i) many += " " + std::to_string(i % 100'000);
  Ids ids;
  crowded.encode(many, ids);
  EXPECT_EQ(decode(t, ids, true), many);
  const auto [pieces, hits] = crowded.stats();
  EXPECT_EQ(pieces, 200'000);
  EXPECT_LT(hits, 100'000);
  EXPECT_EQ(tokens(t, std::string("!!\n!!\0", 6)), std::string("!!|\n|!!|\0", 9));
}

TEST(TokenEncoder, AllBytesComeBack) {
  const Tokenizer t = trained(11);
  std::string all;
  for (int a = 0; a < 256; ++a)
    for (int b = 0; b < 256; ++b) all += {static_cast<char>(a), static_cast<char>(b)};
  for (const Split split : {Split::Gpt2, Split::Llama3, Split::Cl100k}) {
    Tokenizer one = t;
    one.split = split;
    Ids ids;
    Encoder(one).encode(all, ids);
    EXPECT_EQ(decode(one, ids, false), all);
  }
  const Ids unknown{100'000};
  EXPECT_THROW(decode(t, unknown, false), UserError);
}

TEST(TokenEncoder, SpecialTokensAreTextUnlessAllowed) {
  Tokenizer t = with_merges({{"<", "|"}});
  const uint32_t longer = static_cast<uint32_t>(t.tokens.size());
  t.tokens.emplace_back("<|endoftext|>>");
  t.added["<|endoftext|>>"] = {.id = longer};
  EXPECT_EQ(tokens(t, "a<|end"), "a|<||e|n|d");
  EXPECT_EQ(tokens(t, "x<|endoftext|>y", true), "x|<|endoftext|>|y");
  EXPECT_EQ(tokens(t, "<|endoftext|>>", true), "<|endoftext|>>");
  EXPECT_NE(tokens(t, "x<|endoftext|>y"), "x|<|endoftext|>|y");
  Ids ids;
  Encoder(t, true).encode("a <|endoftext|>b", ids);
  EXPECT_EQ(decode(t, ids, true), "a <|endoftext|>b");
  EXPECT_EQ(decode(t, ids, false), "a b");
}

// As runs of blanks in phi-2 and <tool_call> in Qwen.
TEST(TokenEncoder, AddedTokensThatAreNotSpecialAreAlwaysFound) {
  Tokenizer t = with_merges({{" ", "a"}});
  const auto add = [&](const std::string& text, bool special, bool normalized) {
    t.added[text] = {static_cast<uint32_t>(t.vocab()), special, normalized};
    t.tokens.push_back(text);
  };
  for (const char* text : {"  ", "   ", "b!", "!<"}) add(text, false, true);
  add("<tool_call>", false, false);
  add("<end>", true, false);
  add("d>", false, false);
  EXPECT_EQ(tokens(t, "x     a"), "x|   |  |a") << "the longest, from the left";
  EXPECT_EQ(tokens(t, "b <tool_call> a"), "b| |<tool_call>| a");
  EXPECT_EQ(tokens(t, "b!<!"), "b!|<|!");
  EXPECT_EQ(tokens(t, "!!<tool_call>"), "!|!|<tool_call>") << "those with normalized come later";
  EXPECT_EQ(tokens(t, "d><end>d>"), "d>|<|e|n|d|>|d>") << "what is hidden stays hidden";
  EXPECT_EQ(tokens(t, "d><end>d>", true), "d>|<end>|d>");
  Ids ids;
  Encoder(t, true).encode("if:\n    a<end>", ids);
  EXPECT_EQ(decode(t, ids, false), "if:\n    a");
  EXPECT_EQ(token_bytes(t)[t.added.at("   ").id], 3);
}

TEST(TokenEncoder, AWholePieceOfRanks) {
  // "abc" is a token that no merge of "ab" and "bc" leads to.
  TokenizerBuilder builder = test::with_tokens({"bc", "cd", "abcd"});
  builder.merge_by_rank();
  const Tokenizer t = builder.finish();
  EXPECT_EQ(tokens(t, "abcd"), "abcd");
  EXPECT_EQ(tokens(t, "abcde"), "a|bc|d|e");
}

}  // namespace
}  // namespace ladder
