// What a file holds: find_format() knows it by the content of the file and by --tokens.
#include <cstring>
#include <vector>

#include "common/text_format.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

class DataFormat : public testing::Test {
 protected:
  template <class Int>
  static std::string numbers(const std::vector<int64_t>& values) {
    std::string bytes(values.size() * sizeof(Int), '\0');
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<Int>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(Int), &value, sizeof(Int));
    }
    return bytes;
  }
  /// Numbers like those of a tokenizer. A tenth of them are below 256.
  static std::vector<int64_t> tokens(int64_t count, int64_t vocab = 50257) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < count; ++i)
      all.push_back(i % 10 == 0 ? 13 : 257 + i * 7919 % (vocab - 257));
    return all;
  }
  static std::string header(int64_t magic, int64_t version, int64_t count) {
    std::vector<int64_t> words(256);
    words[0] = magic;
    words[1] = version;
    words[2] = count;
    return numbers<int32_t>(words);
  }
  TextFormat find(const std::string& bytes, TokenKind said = TokenKind::Auto,
                  int64_t vocab = 50257) const {
    const std::string path = dir_ / "file";
    write_file(path, bytes);
    return find_format(InputFile(path, "--data"), said, vocab);
  }

  TempDir dir_;
};

TEST_F(DataFormat, TextIsText) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string("text\n"), std::string(300'000, '\xC3')}) {
    EXPECT_TRUE(find(text).bytes()) << text.size();
    EXPECT_TRUE(find(text, TokenKind::Bytes).bytes()) << text.size();
  }
}

TEST_F(DataFormat, NoByteOfATextIsZero) {
  for (const std::string& other :
       {std::string(300'000, 'x') + '\0', numbers<uint16_t>(tokens(100)),
        numbers<uint32_t>(tokens(1'000'000, 128'256)), "\x93NUMPY\x01" + std::string(1, '\0')}) {
    EXPECT_USER_ERROR(find(other), "has bytes that are 0, so it is no text; --tokens uint16 or");
    EXPECT_TRUE(find(other, TokenKind::Bytes).bytes());
  }
  EXPECT_EQ(find(numbers<uint16_t>(tokens(100)), TokenKind::Uint16).width, 2);
}

TEST_F(DataFormat, LinesOfDocumentsNeedATokenizer) {
  const std::string path = dir_ / "a.jsonl";
  write_file(path, "{\"text\": \"a\"}\n");
  const auto find = [&](TokenKind said, bool encodes) {
    return find_format(InputFile(path, "--data"), said, 256, encodes);
  };
  EXPECT_USER_ERROR(find(TokenKind::Auto, false), "its lines are documents, which --tokenizer");
  EXPECT_TRUE(find(TokenKind::Auto, true).bytes());
  EXPECT_TRUE(find(TokenKind::Bytes, false).bytes());
}

TEST_F(DataFormat, TextIsNoTokens) {
  for (const TokenKind said : {TokenKind::Uint16, TokenKind::Uint32})
    EXPECT_USER_ERROR(find(std::string(4096, 'x'), said, 1 << 20), "none of its bytes is 0");
}

TEST_F(DataFormat, TokensAreWhole) {
  EXPECT_USER_ERROR(find(numbers<uint16_t>(tokens(4000)) + "x", TokenKind::Uint16),
                    "8001 bytes are no whole number of --tokens uint16");
  EXPECT_USER_ERROR(
      find(header(20240520, 1, 10) + numbers<uint16_t>(tokens(10)), TokenKind::Uint32),
      "its header of llm.c says uint16, not --tokens uint32");
}

TEST_F(DataFormat, HeadersOfLlmC) {
  const auto two = numbers<uint16_t>(tokens(1000));
  const TextFormat format = find(header(20240520, 1, 1000) + two);
  EXPECT_EQ(format.width, 2);
  EXPECT_EQ(format.header, 1024);
  EXPECT_EQ(format.count(1024 + 2000), 1000);
  EXPECT_EQ(find(header(20240801, 7, 1000) + numbers<uint32_t>(tokens(1000))).width, 4);
  EXPECT_USER_ERROR(find(header(20240520, 1, 999) + two), "with 999 tokens takes 3022 bytes");
  EXPECT_USER_ERROR(find(header(20240520, 3, 1000) + two), "of version 3; only version 1");
  EXPECT_USER_ERROR(find(header(20240801, 1, 1000) + two), "of version 1; only version 7");
  EXPECT_USER_ERROR(find(header(20240520, 1, -1) + two), "with 4294967295 tokens");
  EXPECT_USER_ERROR(find((header(20240520, 1, 1000) + two).substr(0, 1023)), "bytes that are 0");
}

TEST_F(DataFormat, ForeignTokensAreRefusedIfTheyAreSeen) {
  std::vector<int64_t> all = tokens(1000);
  all[700] = 60'000;
  EXPECT_USER_ERROR(find(numbers<uint16_t>(all), TokenKind::Uint16),
                    "token 700 is 60000, and the vocabulary has 50257");
  EXPECT_USER_ERROR(find(numbers<uint16_t>(tokens(1000)), TokenKind::Uint16, 256),
                    "the vocabulary has 256");
  EXPECT_USER_ERROR(find(header(20240520, 1, 1000) + numbers<uint16_t>(all)), "token 700 is 60000");
  // The last page of a long file is among those that are looked at; the second is not.
  all = tokens(1'000'000);
  all[3000] = 60'000;
  EXPECT_EQ(find(numbers<uint16_t>(all), TokenKind::Uint16).width, 2);
  all.back() = 60'000;
  EXPECT_USER_ERROR(find(numbers<uint16_t>(all), TokenKind::Uint16), "token 999999 is 60000");
}

}  // namespace
}  // namespace ladder
