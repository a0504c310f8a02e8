// Signatures, bands, components and survivors.
#include <cmath>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "chapters/25_corpus/components.h"
#include "chapters/25_corpus/exact.h"
#include "chapters/25_corpus/minhash.h"
#include "common/random.h"

namespace ladder::test {
namespace {

constexpr int64_t kBands = 14, kTestRows = 8;

TEST(MinHash, ModuloIsThatOfMersennesPrime) {
  const Random random(1, "mod");
  for (uint64_t i = 0; i < 1000; ++i)
    EXPECT_EQ(mod_mersenne61(random.bits(i)[0]), random.bits(i)[0] % kMersenne61);
  for (const uint64_t x :
       {uint64_t{0}, kMersenne61 - 1, kMersenne61, kMersenne61 + 1, 2 * kMersenne61, UINT64_MAX})
    EXPECT_EQ(mod_mersenne61(x), x % kMersenne61);
}

// What datatrove 0.10.1 makes of the same hashes with its parameters (seed 1).
TEST(MinHash, SignaturesAreThoseOfDatatrove) {
  const HashFunctions functions(kBands * kTestRows);
  EXPECT_EQ(functions.a[0], 775169054918279404u);
  EXPECT_EQ(functions.b.back(), 1097409548522419201u);
  const std::vector<uint64_t> hashes = {
      1, (uint64_t{1} << 63) + 5, 12345678901234567890u, 0, UINT64_MAX, kMersenne61};
  const std::vector<uint64_t> of = signature(hashes, functions);
  EXPECT_EQ(of[0], 287279746106820513u);
  EXPECT_EQ(of.back(), 873544472496381455u);
  EXPECT_EQ(hash64({reinterpret_cast<const char*>(of.data()), of.size() * 8}), 0xeb26972878d0745du);
  EXPECT_EQ(signature(std::span(hashes).first(1), functions)[0], 1837617855943379321u);
}

TEST(MinHash, WordsAreInLowerCaseWithoutMarks) {
  const PlainWords words("The  CAT, (sat) on—the Ärmel's mat!");
  EXPECT_EQ(words.size(), 8u);
  EXPECT_EQ(words.gram(0, 4), "the cat sat on");
  EXPECT_EQ(words.gram(4, 4), "the Ärmel s mat");
  EXPECT_EQ(shingles(words, 5).size(), 4u);
  EXPECT_EQ(shingles(words, 5)[0], hash64("the cat sat on the"));
  EXPECT_TRUE(shingles(PlainWords("only four words here"), 5).empty());
}

/// Two sets of 40 + 2 own hashes, of which 40 are in both.
bool are_candidates(const HashFunctions& functions, uint64_t pair, int64_t shared, int64_t own) {
  const Random random(2, "pairs");
  std::vector<uint64_t> a, b;
  const auto draw = [&](uint64_t i) { return random.bits(pair, i)[0]; };
  for (int64_t i = 0; i < shared; ++i) a.push_back(draw(static_cast<uint64_t>(i)));
  b = a;
  for (int64_t i = 0; i < own; ++i) {
    a.push_back(draw(static_cast<uint64_t>(1000 + i)));
    b.push_back(draw(static_cast<uint64_t>(2000 + i)));
  }
  const std::vector<Hash128> keys = band_keys(signature(a, functions), kTestRows);
  const std::vector<Hash128> others = band_keys(signature(b, functions), kTestRows);
  for (const Hash128& key : keys)
    for (const Hash128& other : others)
      if (key == other) return true;
  return false;
}

// Ten similarities s = 40 / (40 + 2 own).
TEST(MinHash, ShareOfCandidatesIsThatOfTheCurve) {
  const HashFunctions functions(kBands * kTestRows);
  constexpr int kPairs = 400;
  for (const int64_t own : {1, 3, 5, 6, 7, 8, 10, 12, 15, 30}) {
    const double s = 40.0 / static_cast<double>(40 + 2 * own);
    const double want = kPairs * shares_a_band(s, kBands, kTestRows);
    int found = 0;
    for (uint64_t pair = 0; pair < kPairs; ++pair)
      found += are_candidates(functions, pair + 1000 * static_cast<uint64_t>(own), 40, own);
    EXPECT_LE(std::abs(found - want), 4.5 * std::sqrt(want * (1 - want / kPairs)) + 1) << s;
  }
}

TEST(MinHash, KeysOfTwoBandsAreNeverEqual) {
  const std::vector<uint64_t> same(16, 7);
  const std::vector<Hash128> keys = band_keys(same, 8);
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_NE(keys[0], keys[1]);
}

TEST(JoinedDocuments, SurvivorsDependOnNoOrder) {
  // A chain 0-1-2-3-4, a pair 5-6, and 7 alone; 2 is out of the question.
  const std::vector<int> keys = {5, 4, 0, 3, 9, 1, 2, 8};
  std::vector<NearPair> pairs = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {6, 5}, {4, 0}};
  for (size_t turn = 0; turn < pairs.size(); ++turn) {
    std::ranges::rotate(pairs, pairs.begin() + 1);
    Components components(keys.size());
    for (const auto& [a, b] : pairs) components.join(a, b);
    const std::vector<uint64_t> of = survivors(
        components, keys.size(), [](uint64_t i) { return i != 2; },
        [&](uint64_t a, uint64_t b) { return keys[a] < keys[b]; });
    EXPECT_EQ(of, (std::vector<uint64_t>{3, 3, 3, 3, 3, 5, 5, 7}));
  }
}

TEST(EqualTexts, AreComparedByBytesAlthoughTheirHashIsOne) {
  const auto line = [](const char* text, const char* source, const char* id, uint64_t ordinal) {
    return TextLine{.document = {.text = text, .id = id, .source = source},
                    .line = {0, ordinal},
                    .ordinal = ordinal};
  };
  EqualTexts texts;
  texts.add(line("a", "web", "2", 0));
  texts.add(line("b", "web", "1", 1));
  texts.add(line("a", "book", "7", 2));
  texts.add(line("a", "book", "7", 3));
  texts.add(line("a", "book", "8", 4));
  std::map<uint64_t, uint64_t> removed;
  texts.for_removed([&](uint64_t gone, uint64_t survivor) { removed[gone] = survivor; });
  EXPECT_EQ(removed, (std::map<uint64_t, uint64_t>{{0, 2}, {3, 2}, {4, 2}}));
}

}  // namespace
}  // namespace ladder::test
