// Tokens that are kept: one writer at a time, and a name that tells tokenizers apart.
#include <cstdlib>
#include <filesystem>
#include <future>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/run/tokenizer.h"
#include "common/tokens/tokenizer_files.h"
#include "tests/24_tokenizer/texts.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

using test::small;

TEST(KeptTokens, OneOfManyWritesThem) {
  const TempDir dir;
  ::setenv("LADDER_CACHE", (dir / "cache").c_str(), 1);
  write_tokenizer(dir / "t", small());
  std::string text;
  while (text.size() < 1 << 20) text += "abc " + std::to_string(text.size());
  write_file(dir / "text", text);
  const auto tokenizer = find_tokenizer(dir / "t", "");
  testing::internal::CaptureStderr();
  std::vector<std::future<KeptTokens>> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(std::async(std::launch::async,
                             [&] { return keep_tokens(*tokenizer, dir / "text", 1, true); }));
  std::set<std::string> paths;
  for (auto& one : all) EXPECT_NO_THROW(paths.insert(one.get().path));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_EQ(paths.size(), 1u);
  EXPECT_EQ(files_in(dir / "cache").size(), 1u) << "nothing is left beside it";
  ::unsetenv("LADDER_CACHE");
}

TEST(KeptTokens, AFingerprintTellsTokenizersApart) {
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
  other.special.clear();
  EXPECT_NE(fingerprint(other), one);
}

TEST(KeptTokens, TheEndOfATextIsNoByteOfIt) {
  const std::vector<int32_t> bytes = token_bytes(small());
  EXPECT_EQ(bytes.at(0), 1);
  EXPECT_EQ(bytes.at(256), 2);
  EXPECT_EQ(bytes.at(258), 4) << " abc";
  EXPECT_EQ(bytes.at(259), 0);
}

}  // namespace
}  // namespace ladder
