// Chapters on tokens: --tokenizer trains on the ids that `encode` writes, a checkpoint keeps its
// tokenizer, and what does not belong together is refused.
#include <array>
#include <filesystem>
#include <numbers>
#include <string>

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class ChaptersOnTokens : public Programs {
 protected:
  ChaptersOnTokens() {
    for (const char* line : {"train --data text.txt --vocab 300 --out t",
                             "train --data text.txt --vocab 280 --out other",
                             "encode --tokenizer t --data text.txt --out x.bin"})
      succeed("24_tokenizer", line);
  }
  static constexpr const char* kChapter = "06_checkpointing";
  std::string trace(const std::string& chapter, const std::string& flags) const {
    train(chapter, "--steps 2 --layers 1 --trace trace.jsonl " + flags);
    return read("trace.jsonl");
  }
  static void expect_bits(const nlohmann::json& r) {
    const double nats = r["val_loss"], targets = r["val_targets"], bytes = r["val_bytes"];
    EXPECT_NEAR(r["bits_per_byte"], nats * targets / bytes / std::numbers::ln2, 1e-12);
    EXPECT_GT(r["final_bits_per_byte"], 0);
  }
};

TEST_F(ChaptersOnTokens, ATextAndItsTokensGiveTheSameBits) {
  const std::string want = trace("01_sgd", "--data x.bin --tokens uint16 --vocab 300");
  EXPECT_EQ(trace("01_sgd", "--data text.txt --tokenizer t"), want);
  EXPECT_NE(trace("01_sgd", "--data text.txt --tokenizer other"), want);
  const std::string ddp = trace("10_zero3", "--data x.bin --tokens uint16 --vocab 300");
  EXPECT_EQ(trace("10_zero3", "--data text.txt --tokenizer t --ranks 2"), ddp);
}

TEST_F(ChaptersOnTokens, BitsPerByteAreOfTheBytesThatTargetsStandFor) {
  const auto check = [&](const std::string& flags, bool bytes) {
    const nlohmann::json r = report(kChapter, "--steps 2 --eval-every 1 --layers 1 " + flags);
    EXPECT_EQ(r["val_targets"] == r["val_bytes"], bytes) << flags;
    EXPECT_GE(r["val_bytes"], r["val_targets"]);
    EXPECT_GT(r["evals"][0]["bits_per_byte"], 0);
    expect_bits(r);
    return r;
  };
  check("--data text.txt", true);
  const nlohmann::json r = check("--data text.txt --tokenizer t", false);
  EXPECT_EQ(check("--data x.bin --tokens uint16 --tokenizer t", false)["bits_per_byte"],
            r["bits_per_byte"]);
  const nlohmann::json none =
      report(kChapter, "--steps 1 --layers 1 --data x.bin --tokens uint16 --vocab 300");
  EXPECT_TRUE(none["bits_per_byte"].is_null()) << "nobody knows the bytes";
}

// The first token of each document is '#', the only one that is no target. The last one is the end
// of text, which stands for no byte.
TEST_F(ChaptersOnTokens, BitsPerByteOfDocuments) {
  std::string lines;
  std::array<size_t, 2> bytes{};  // of 36 documents that train, and of the last tenth
  for (size_t i = 0; i < 40; ++i) {
    const std::string text = read("text.txt").substr(20 * i, 1 + i % 15);
    lines += nlohmann::json{{"text", "#" + text}}.dump() + "\n";
    bytes.at(i / 36) += text.size();
  }
  write("a.jsonl", lines);
  succeed("24_tokenizer", "encode --tokenizer t --data a.jsonl --format megatron --out a.bin");
  const std::string flags = "--layers 1 --steps 9 --tokenizer t --documents --row-documents 1 ";
  const std::string file = flags + "--data a.bin --tokens uint16 ";
  for (const auto& [chapter, given] :
       {std::pair<std::string, std::string>{"26_packing", file},
        {"27_data_order", file + "--ranks 2"},
        {"27_data_order", file + "--ranks 2 --sources a.bin:1 --epochs 1"}}) {
    const nlohmann::json r = report(chapter, given);
    EXPECT_EQ(r["bytes_read"], bytes[0]) << given;
    EXPECT_EQ(r["val_bytes"], bytes[1]) << given;
    expect_bits(r);
  }
  const std::string texts = flags + "--data a.jsonl --end-of-text 299 --sources text.txt:1";
  expect_refused("27_data_order", texts, "is read as text, and --data a.jsonl as tokens");
}

// Each line is a document, as in the files of `encode`; without --documents, rows go on over the
// ends. Raw JSON trains only where it is asked for.
TEST_F(ChaptersOnTokens, LinesAreDocuments) {
  std::string lines;
  for (size_t i = 0; i < 300; ++i)
    lines += nlohmann::json{{"text", read("text.txt").substr(11 * i, 1 + i % 15)}}.dump() + "\n";
  write("a.jsonl", lines);
  succeed("24_tokenizer", "encode --tokenizer t --data a.jsonl --format megatron --out a.bin");
  for (const std::string flags : {"", " --documents"})
    EXPECT_EQ(trace("26_packing", "--data a.jsonl --tokenizer t" + flags),
              trace("26_packing", "--data a.bin --tokens uint16 --vocab 300" + flags));
  expect_refused(kChapter, "--layers 1 --steps 1 --data a.jsonl",
                 "a.jsonl: its lines are documents, which --tokenizer reads; --tokens bytes");
  train(kChapter, "--layers 1 --steps 1 --data a.jsonl --tokens bytes");
}

// That of --load is meant for a file of tokens, too.
TEST_F(ChaptersOnTokens, AFileOfTokensTakesTheTokenizerOfItsCheckpoint) {
  train(kChapter, "--layers 1 --steps 1 --data text.txt --tokenizer t --save s");
  const nlohmann::json r =
      report(kChapter, "--layers 1 --steps 2 --data x.bin --tokens uint16 --load s");
  EXPECT_EQ(r["bits_per_byte"],
            report(kChapter, "--layers 1 --steps 2 --data text.txt --load s")["bits_per_byte"]);
  expect_bits(r);
}

TEST_F(ChaptersOnTokens, ACheckpointKeepsItsTokenizer) {
  const std::string flags = "--data text.txt --layers 1 ";
  train(kChapter, flags + "--tokenizer t --steps 2 --save s");
  EXPECT_EQ(std::filesystem::read_symlink(path("s/tokenizer.json")), "current/tokenizer.json");
  EXPECT_EQ(read("s/tokenizer.json"), read("t/tokenizer.json"));
  EXPECT_EQ(read("s/tokenizer_config.json"), read("t/tokenizer_config.json"));
  EXPECT_EQ(nlohmann::json::parse(read("s/config.json"))["eos_token_id"], 299);
  // It is that of the next run, which prints text.
  const std::string out = train(kChapter, flags + "--load s --steps 3 --sample 200").out;
  const std::string sample = out.substr(out.find("---- sample\n"));
  EXPECT_NE(sample.find("night"), std::string::npos) << sample;
  // A run on bytes in its place has none: the link that stays leads nowhere.
  train(kChapter, flags + "--steps 1 --save s --overwrite");
  EXPECT_FALSE(std::filesystem::exists(path("s/tokenizer.json")));
  train(kChapter, flags + "--steps 2 --load s");
}

TEST_F(ChaptersOnTokens, WhatDoesNotBelongTogetherIsRefused) {
  train(kChapter, "--data text.txt --layers 1 --tokenizer t --steps 1 --save s");
  write("bad.json", "{}");
  std::filesystem::create_directory(path("odd"));
  write("odd/tokenizer.json", "{}");
  const auto before = files();
  for (const auto& [flags, says] :
       {std::pair<std::string, std::string>{"--tokenizer none", "none: no such file or directory"},
        {"--tokenizer " + std::string(300, 'x'), "xxx: File name too long"},
        {"--tokenizer bad.json", "bad.json: no model; it is not the file of a tokenizer"},
        {"--load odd", "no model; it is not the file of a tokenizer; --tokens bytes takes --data"},
        {"--tokenizer t/ranks.tiktoken", "--split of ch24_tokenizer does"},
        {"--tokenizer t --vocab 299",
         "--vocab 299: the tokenizer in t has 300 tokens; legal is at least that"},
        {"--tokenizer t --tokens bytes", "a token is no byte; legal is one of them"},
        {"--tokenizer other --load s", "other has 280 tokens"},
        {"--tokenizer other --load s", "--load s was trained with another of 300 tokens"},
        {"--load s --tokens bytes", "vocab is 300 there and 256 here"},
        {"--tokenizer t --save t", "holds tokenizer.json, which no --save has put there"},
        {"--tokenizer t --report t/tokenizer.json", "would write in --tokenizer t"},
        {"--tokenizer other --data x.bin --tokens uint16", "and the vocabulary has 280"},
        {"--tokenizer other --data x.bin --tokens uint16 --vocab 300", "the vocabulary has 280"}}) {
    const std::string data = flags.find("--data") == std::string::npos ? " --data text.txt" : "";
    const Ended ended = run(kChapter, small_run("--layers 1 --steps 2 " + flags + data));
    EXPECT_EQ(ended.status, 2) << flags << "\n" << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
    EXPECT_NE(ended.err.find(says), std::string::npos) << flags << "\n" << ended.err;
  }
  EXPECT_EQ(files(), before);
}

}  // namespace
}  // namespace ladder::test
