// What a run knows of its tokenizer: a fingerprint, and the bytes of each token.
#include <vector>

#include <gtest/gtest.h>

#include "common/tokens/tokenizer_files.h"
#include "tests/24_tokenizer/texts.h"

namespace ladder {
namespace {

using test::small;

TEST(RunTokenizers, AFingerprintTellsTokenizersApart) {
  const std::string one = fingerprint(small());
  EXPECT_EQ(fingerprint(small()), one);
  EXPECT_NE(fingerprint(small(Split::Llama3)), one);
  Tokenizer other = small();
  std::swap(other.merges[0].rank, other.merges[1].rank);
  EXPECT_NE(fingerprint(other), one);
  other = small();
  std::swap(other.tokens[0], other.tokens[1]);
  EXPECT_NE(fingerprint(other), one);
  other = small();
  other.added.clear();
  EXPECT_NE(fingerprint(other), one);
  other = small();
  other.added.at(kEndOfText).special = false;
  EXPECT_NE(fingerprint(other), one);
  other = small();
  other.end_of_text.reset();
  EXPECT_NE(fingerprint(other), one);
}

TEST(RunTokenizers, TheEndOfATextIsNoByteOfIt) {
  const std::vector<int32_t> bytes = token_bytes(small());
  EXPECT_EQ(bytes.at(0), 1);
  EXPECT_EQ(bytes.at(256), 2);
  EXPECT_EQ(bytes.at(258), 4) << " abc";
  EXPECT_EQ(bytes.at(259), 0);
}

}  // namespace
}  // namespace ladder
