// Files of tokenizers: each kind is read as it was written, and what contradicts itself is refused.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/tokens/token_file.h"
#include "common/tokens/tokenizer_files.h"
#include "tests/24_tokenizer/texts.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

using test::small;

void expect_same(const Tokenizer& a, const Tokenizer& b) {
  EXPECT_EQ(a.split, b.split);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.added, b.added);
  EXPECT_EQ(a.end_of_text, b.end_of_text);
  ASSERT_EQ(a.merges.size(), b.merges.size());
  for (size_t i = 0; i < a.merges.size(); ++i) {
    EXPECT_EQ(a.merges[i].left, b.merges[i].left);
    EXPECT_EQ(a.merges[i].right, b.merges[i].right);
    EXPECT_EQ(a.merges[i].result, b.merges[i].result);
  }
}

TEST(TokenizerFiles, EachKindIsReadAsItWasWritten) {
  const TempDir home;
  for (const Split split : {Split::Gpt2, Split::Llama3, Split::Cl100k}) {
    const Tokenizer wanted = small(split);
    write_tokenizer(home / "t", wanted);
    expect_same(read_tokenizer(home / "t"), wanted);
    expect_same(read_tokenizer(home / "t/tokenizer.json"), wanted);
    expect_same(read_tokenizer(home / "t/ranks.tiktoken", TokenizerHints{split, 259}), wanted);
  }
}

/// small() as JSON, in which something is changed, does not load.
void expect_refused(const std::string& pointer, const nlohmann::json& value,
                    const std::string& says) {
  nlohmann::json root = nlohmann::json::parse(tokenizer_to_json(small()).dump());
  root[nlohmann::json::json_pointer(pointer)] = value;
  SCOPED_TRACE(pointer);
  EXPECT_USER_ERROR(tokenizer_from_json(root), says);
}

TEST(TokenizerFiles, WhatContradictsItselfIsRefused) {
  expect_refused("/model/vocab/!", 5, "the id 5 is that of two tokens");
  expect_refused("/model/vocab/!", -1, "has the id -1; legal are 0 to");
  expect_refused("/model/vocab/!", 1.5, "token ! has the id 1.5");
  expect_refused("/model/vocab/!", 700, "no token has the id 0, and others go up to 700");
  expect_refused("/model/vocab/\u4e2d", 900, "has a character that stands for no byte");
  expect_refused("/model/merges/1", {"x", "y"}, "merge 1 is of x and y, and no token is xy");
  expect_refused("/model/merges/1", {"xx", "y"}, "merge 1 is of xx and y, and no token is xx");
  expect_refused("/model/merges/1", "b", R"(merge 1 is "b"; legal are ["a", "b"] and "a b")");
  expect_refused("/model/merges/1", {"\u0120", "a"}, "merges 0 and 1 are of the same tokens");
  expect_refused("/model/merges", 3, "no list of merges");
  expect_refused("/model/vocab", nullptr, "the model has no vocab");
  expect_refused("/model/type", "WordPiece", R"(the model is of type "WordPiece"; legal is BPE)");
  expect_refused("/model/dropout", 0.1, "dropout is 0.1");
  expect_refused("/model/byte_fallback", true, "byte_fallback is true; legal is false");
  expect_refused("/normalizer", {{"type", "NFC"}}, R"(normalizer is {"type":"NFC"})");
  expect_refused("/pre_tokenizer/type", "Whitespace",
                 "legal are ByteLevel, and Split with the pattern of gpt2, llama3, cl100k");
  expect_refused("/pre_tokenizer/add_prefix_space", true, "add_prefix_space is true");
  expect_refused("/pre_tokenizer/use_regex", false, "use_regex is false; legal is true");
  expect_refused("/added_tokens/0/lstrip", true, "added token <|endoftext|>: lstrip is true");
  expect_refused("/added_tokens/0/content", "a",
                 "the id 259 is that of two tokens, <|endoftext|> and a");
  const nlohmann::json one = {{"content", "x y"}, {"id", 260}};
  nlohmann::json other = one;
  other["id"] = 261;
  expect_refused("/added_tokens", {one, other}, "token x y has two ids, 260 and 261");
  nlohmann::json root = nlohmann::json::parse(tokenizer_to_json(small()).dump());
  root["model"]["vocab"].erase("z");
  EXPECT_USER_ERROR(tokenizer_from_json(root), "no token has the id 89");
  root = nlohmann::json::parse(tokenizer_to_json(small()).dump());
  root["model"]["merges"] = {"\u0120 a", "b c"};  // as older files have them
  EXPECT_EQ(tokenizer_from_json(root).merges.size(), 2U);
}

// An id takes memory, whether a token has it or not.
TEST(TokenizerFiles, IdsGoLittleBeyondTheTokens) {
  expect_refused("/added_tokens/0/id", (1 << 24) - 1,
                 "token <|endoftext|> has the id 16777215; legal are 0 to 65795 for 260 tokens");
  expect_refused("/added_tokens/0/id", 65796, "legal are 0 to 65795");
  nlohmann::json root = nlohmann::json::parse(tokenizer_to_json(small()).dump());
  root["added_tokens"][0]["id"] = 65795;
  EXPECT_EQ(tokenizer_from_json(root).vocab(), 65796);
}

// Not by each of its cuts: that would take minutes.
TEST(TokenizerFiles, ALongRankIsReadAtOnce) {
  TokenizerBuilder builder = test::with_tokens({"ab", std::string(size_t{256} << 10, 'a') + "b"});
  builder.merge_by_rank();
  builder.add_added(kEndOfText, {}, 258);
  EXPECT_EQ(builder.finish().merges.size(), 1U);
}

TEST(TokenizerFiles, RanksHaveNoGaps) {
  const TempDir home;
  write_tokenizer(home / "t", small());
  const std::string ranks = read_file(home / "t/ranks.tiktoken");
  const auto refused = [&](const std::string& bytes, const std::string& says) {
    write_file(home / "x.tiktoken", bytes);
    EXPECT_USER_ERROR(read_tokenizer(home / "x.tiktoken", TokenizerHints{Split::Gpt2, {}}), says);
  };
  EXPECT_USER_ERROR(read_tokenizer(home / "t/ranks.tiktoken"),
                    "--split of ch24_tokenizer does: gpt2");
  refused(ranks + "YWI= 260\n", "no token has the id 259, and others go up to 260");
  refused(ranks + "YWI= 7\n", "the id 7 is that of two tokens");
  refused(ranks + "IGE= 259\n", "has two ids, 256 and 259");
  refused(ranks + "YW%= 259\n", "line 260 is YW%= 259; legal is a token in base64");
  refused(ranks + "YWI=\n", "line 260 is YWI=; legal");
  refused(ranks + "YWI= x\n", "legal is a token in base64, a blank, and its rank");
  refused(ranks.substr(ranks.find('\n') + 1), "no token has the id 0");
  refused("", "no token is the byte 0; a byte-level tokenizer has all 256");
  EXPECT_USER_ERROR(read_tokenizer(home / "none.json"), "none.json: no such file");
  std::filesystem::create_directory(home / "empty");
  EXPECT_USER_ERROR(read_tokenizer(home / "empty"), "holds neither tokenizer.json nor *.tiktoken");
}

/// Writes a file of JSON.
void write_json(const std::string& path, const nlohmann::json& value) {
  write_file(path, value.dump());
}

TEST(TokenizerFiles, AddedTokensKeepWhatTheyAre) {
  const TempDir home;
  Tokenizer wanted = small();
  for (const bool special : {false, true})
    for (const bool normalized : {false, true}) {
      const std::string text = fmt::format("   {}{}", special, normalized);
      wanted.added[text] = {static_cast<uint32_t>(wanted.vocab()), special, normalized};
      wanted.tokens.push_back(text);
    }
  write_tokenizer(home / "t", wanted);
  const Tokenizer read = read_tokenizer(home / "t");
  expect_same(read, wanted);
  EXPECT_EQ(fingerprint(read), fingerprint(wanted));
}

TEST(TokenizerFiles, AFileSaysWhichTokenEndsAText) {
  const TempDir home;
  nlohmann::json root = nlohmann::json::parse(tokenizer_to_json(small()).dump());
  for (const char* text : {"</s>", "<|end_of_text|>", "<call>"}) {
    root["added_tokens"].push_back(root["added_tokens"][0]);
    root["added_tokens"].back()["content"] = text;
    root["added_tokens"].back()["id"] = 259 + root["added_tokens"].size() - 1;
    root["added_tokens"].back()["special"] = std::string(text) != "<call>";
  }
  const auto end = [&](const TokenizerHints& hints = {}) {
    return read_tokenizer(home / "tokenizer.json", hints).end_of_text;
  };
  write_json(home / "tokenizer.json", root);
  EXPECT_EQ(end(), 259) << "its name";
  write_json(home / "config.json", {{"eos_token_id", 260}});
  EXPECT_EQ(end(), 260);
  write_json(home / "special_tokens_map.json", {{"eos_token", "<|end_of_text|>"}});
  EXPECT_EQ(end(), 261);
  write_json(home / "tokenizer_config.json", {{"eos_token", {{"content", "</s>"}}}});
  EXPECT_EQ(end(), 260);
  EXPECT_EQ(end({{}, 262}), 262) << "the flag";
  EXPECT_TRUE(read_tokenizer(home / "tokenizer.json", {{}, 262}).is_special(262));
  EXPECT_USER_ERROR(end({{}, 300}), "token 300 ends a text, and there is none of this id");
  EXPECT_USER_ERROR(end({{}, 256}), "token 256 ends a text, and is \u0120a, which a text may have");
  EXPECT_USER_ERROR(end({{}, 0}), "token 0 ends a text, and is !, which a text may have");
  write_json(home / "tokenizer_config.json", {{"eos_token", "<gone>"}});
  EXPECT_USER_ERROR(end(),
                    "tokenizer_config.json says that <gone> ends a text, and no added token is");
}

// What a run knows of its tokenizer: a fingerprint, and the bytes of each token.
TEST(TokenizerFiles, AFingerprintTellsTokenizersApart) {
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

TEST(TokenizerFiles, TheEndOfATextIsNoByteOfIt) {
  const std::vector<int32_t> bytes = token_bytes(small());
  EXPECT_EQ(bytes.at(0), 1);
  EXPECT_EQ(bytes.at(256), 2);
  EXPECT_EQ(bytes.at(258), 4) << " abc";
  EXPECT_EQ(bytes.at(259), 0);
}

TEST(TokenFiles, MegatronsIndex) {
  const TempDir home;
  TokenWriter writer(home / "x.bin", TokenFile::Megatron, TokenKind::Uint16);
  const std::vector<uint32_t> ids{1, 2, 300};
  writer.write(ids);
  writer.end_document();
  writer.write(std::span(ids).first(2));
  writer.end_document();
  writer.commit();
  EXPECT_EQ(read_file(home / "x.bin"), std::string("\1\0\2\0\x2C\1\1\0\2\0", 10));
  const auto numbers = [](std::initializer_list<std::pair<int, uint64_t>> all) {
    std::string bytes;
    for (const auto& [width, value] : all)
      bytes.append(reinterpret_cast<const char*>(&value), static_cast<size_t>(width));
    return bytes;
  };
  const std::string index = numbers(
      {{8, 1}, {1, 8}, {8, 2}, {8, 3}, {4, 3}, {4, 2}, {8, 0}, {8, 6}, {8, 0}, {8, 1}, {8, 2}});
  EXPECT_EQ(read_file(home / "x.idx"), std::string("MMIDIDX\0\0", 9) + index);
}

TEST(TokenFiles, NumbersHaveRoomForTheVocabulary) {
  Tokenizer t;
  t.tokens.resize(1 << 16);
  EXPECT_EQ(token_kind(TokenKind::Auto, t), TokenKind::Uint16);
  t.tokens.resize((1 << 16) + 1);
  EXPECT_EQ(token_kind(TokenKind::Auto, t), TokenKind::Uint32);
  EXPECT_USER_ERROR(token_kind(TokenKind::Uint16, t),
                    "--tokens uint16: the tokenizer has 65537 tokens; legal is uint32");
}

}  // namespace
}  // namespace ladder
