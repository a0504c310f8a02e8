// Both trainers make the same merges, whatever ties; and the traps that others fell into.
#include "chapters/24_tokenizer/trainer.h"

#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/24_tokenizer/texts.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

using Words = std::vector<WordCount>;
using Text = std::vector<std::string>;

/// "a b" for each merge.
Text merges(const Vocabulary& vocabulary) {
  Text all;
  for (const Merge& m : vocabulary.merges())
    all.push_back(to_alphabet(vocabulary.tokens()[m.left]) + " " +
                  to_alphabet(vocabulary.tokens()[m.right]));
  return all;
}
Text plain(const Words& words, int64_t tokens, Ties ties = Ties::Hf) {
  Vocabulary vocabulary(ties, tokens);
  train_plain(words, vocabulary);
  return merges(vocabulary);
}
Text fast(const Words& words, int64_t tokens, Ties ties = Ties::Hf) {
  Vocabulary vocabulary(ties, tokens);
  FastTrainer(words, vocabulary).train();
  return merges(vocabulary);
}
Text both(const Words& words, int64_t tokens, Ties ties = Ties::Hf) {
  EXPECT_EQ(plain(words, tokens, ties), fast(words, tokens, ties));
  return fast(words, tokens, ties);
}

TEST(TokenTrainer, PlainAndFastAgree) {
  test::Texts texts(2);
  for (int i = 0; i < 100; ++i) {
    Words words;
    for (uint64_t n = 1 + texts.below(12); n > 0; --n)
      words.push_back({texts.next(), static_cast<int64_t>(1 + texts.below(3))});
    for (const Ties ties : {Ties::Hf, Ties::Bytes, Ties::Cs336}) {
      Vocabulary a(ties, 290), b(ties, 290);
      std::vector<std::tuple<int64_t, int64_t>> of_a, of_b;  // count, and fewer tokens
      a.watch = [&](const PairCount& c, int64_t fewer) { of_a.emplace_back(c.count, fewer); };
      b.watch = [&](const PairCount& c, int64_t fewer) { of_b.emplace_back(c.count, fewer); };
      train_plain(words, a);
      FastTrainer(words, b).train();
      ASSERT_EQ(merges(a), merges(b));
      ASSERT_EQ(of_a, of_b);
      ASSERT_EQ(a.tokens(), b.tokens());
    }
  }
}

TEST(TokenTrainer, ThreeAreMergedFromTheLeft) {
  EXPECT_EQ(both({{"aaa", 1}}, 300), (Text{"a a", "aa a"}));
  EXPECT_EQ(both({{"aaaaa", 1}}, 300), (Text{"a a", "aa a", "aa aaa"}));
  // "aaa" counts (a, a) twice, so it comes before (b, c), although it is merged once.
  EXPECT_EQ(both({{"aaa", 2}, {"bc", 3}}, 257), Text{"a a"});
}

TEST(TokenTrainer, TiesAreWhereTheyDiffer) {
  // All once. The blank is the last of the alphabet and the second of these bytes.
  const Words words{{" x", 1}, {"\nz", 1}, {"yy", 1}, {"ab", 1}};
  EXPECT_EQ(both(words, 257, Ties::Hf), Text{"a b"});
  EXPECT_EQ(both(words, 257, Ties::Bytes), Text{"\u010a z"});
  EXPECT_EQ(both(words, 257, Ties::Cs336), Text{"y y"});
  EXPECT_EQ(both({{" x", 1}, {"\u00e9", 1}}, 257, Ties::Hf), Text{"\u00c3 \u00a9"});
  EXPECT_EQ(both({{" x", 1}, {"\u00e9", 1}}, 257, Ties::Bytes), Text{"\u0120 x"});
  // By bytes, a longer token is greater than the one it begins with, whichever was made first.
  EXPECT_EQ(both({{"ab", 9}, {"abx", 2}, {"ax", 2}}, 258, Ties::Cs336).back(), "ab x");
}

TEST(TokenTrainer, CountsHaveSixtyFourBits) {
  const int64_t many = int64_t{1} << 32;
  EXPECT_EQ(both({{"ab", many + 1}, {"cd", 5}}, 257), Text{"a b"});
  EXPECT_EQ(both({{"ab", many}, {"xab", many}, {"cd", many + 1}}, 257), Text{"a b"});
}

TEST(TokenTrainer, EndsWhenEachWordIsOneToken) {
  EXPECT_EQ(both({{"abc", 1}}, 10000).size(), 2U);
  EXPECT_TRUE(both({{"a", 7}}, 10000).empty());
}

TEST(TokenTrainer, TwoMergesMayMakeOneToken) {
  Vocabulary vocabulary(Ties::Bytes, 300);
  const uint32_t ab = vocabulary.add({1, 'a', 'b'}), bc = vocabulary.add({1, 'b', 'c'});
  EXPECT_EQ(vocabulary.add({1, ab, 'c'}), vocabulary.add({1, 'a', bc}));
  EXPECT_EQ(vocabulary.tokens().size(), 259U);
  EXPECT_EQ(vocabulary.merges().size(), 4U);
}

/// The words of files, with their counts.
std::map<std::string, int64_t> words_of(const std::vector<std::string>& paths, int threads) {
  Documents documents(paths, Utf8::Bytes);
  std::map<std::string, int64_t> all;
  for (const auto& [word, count] : count_words(documents, Split::Llama3, threads))
    all[word] += count;
  return all;
}

TEST(TokenTrainer, ThreadsShardsAndOrderChangeNoCount) {
  const TempDir home;
  test::Texts texts(3);
  std::string one, two;
  while (one.size() < 3'000'000) one += texts.next();
  for (int i = 0; i < 1000; ++i) two += texts.next();
  const std::string a = home / "a.txt", b = home / "b.txt";
  write_file(a, one);
  write_file(b, two);
  const auto wanted = words_of({a, b}, 1);
  EXPECT_EQ(words_of({a, b}, 4), wanted);
  EXPECT_EQ(words_of({b, a}, 3), wanted);
}

}  // namespace
}  // namespace ladder
