// Chapters on tokens: --tokenizer trains on the ids that `encode` writes, a checkpoint keeps its
// tokenizer, and what does not belong together is refused.
#include <cmath>
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
      EXPECT_EQ(run("24_tokenizer", words(line)).status, 0) << line;
  }
  /// Tokens are kept in the folder of the test.
  static Program program(const std::string& chapter = "06_checkpointing") {
    return {chapter, {"env", "LADDER_CACHE=kept"}};
  }
  std::string trace(const std::string& chapter, const std::string& flags) const {
    train(program(chapter), "--steps 2 --layers 1 --trace trace.jsonl " + flags);
    return read("trace.jsonl");
  }
  /// What is kept.
  std::map<std::string, std::string> kept() const {
    std::map<std::string, std::string> all;
    for (const auto& [name, bytes] : files())
      if (name.starts_with("kept/") && !name.ends_with("/")) all[name] = bytes;
    return all;
  }
};

TEST_F(ChaptersOnTokens, ATextAndItsTokensGiveTheSameBits) {
  const std::string want = trace("01_sgd", "--data x.bin --tokens uint16 --vocab 300");
  EXPECT_EQ(trace("01_sgd", "--data text.txt --tokenizer t"), want);
  EXPECT_NE(trace("01_sgd", "--data text.txt --tokenizer other"), want);
  const std::string ddp = trace("10_zero3", "--data x.bin --tokens uint16 --vocab 300");
  EXPECT_EQ(trace("10_zero3", "--data text.txt --tokenizer t --ranks 2"), ddp);
  ASSERT_EQ(kept().size(), 2u) << "one of each tokenizer";
}

TEST_F(ChaptersOnTokens, ATextIsEncodedOnceAndAnewWhenItHasChanged) {
  const std::string flags = "--data text.txt --tokenizer t --steps 1 --layers 1 --config loud";
  write("loud", "quiet = false\n");
  EXPECT_NE(train(program(), flags).err.find("is encoded with t; the tokens are in kept/text-"),
            std::string::npos);
  const auto first = kept();
  EXPECT_EQ(train(program(), flags).err, "");
  EXPECT_EQ(kept(), first);
  write("text.txt", read("text.txt") + "and more");
  EXPECT_NE(train(program(), flags).err.find("text.txt has changed since it was encoded"),
            std::string::npos);
  ASSERT_EQ(kept().size(), 1u);
  EXPECT_NE(kept(), first);
}

TEST_F(ChaptersOnTokens, BitsPerByteAreOfTheBytesThatTargetsStandFor) {
  const auto check = [&](const std::string& flags, bool bytes) {
    const nlohmann::json r = report(program(), "--steps 2 --eval-every 1 --layers 1 " + flags);
    const double targets = r["val_targets"], over = r["val_bytes"];
    EXPECT_EQ(targets == over, bytes) << flags;
    EXPECT_GE(over, targets);
    const double nats = r["val_loss"], bits = r["bits_per_byte"];
    EXPECT_NEAR(bits, nats * targets / over / std::numbers::ln2, 1e-12);
    EXPECT_GT(r["evals"][0]["bits_per_byte"], 0);
    EXPECT_GT(r["final_bits_per_byte"], 0);
    return r;
  };
  check("--data text.txt", true);
  const nlohmann::json r = check("--data text.txt --tokenizer t", false);
  EXPECT_EQ(check("--data x.bin --tokens uint16 --tokenizer t", false)["bits_per_byte"],
            r["bits_per_byte"]);
  const nlohmann::json none =
      report(program(), "--steps 1 --layers 1 --data x.bin --tokens uint16 --vocab 300");
  EXPECT_TRUE(none["bits_per_byte"].is_null()) << "nobody knows the bytes";
}

TEST_F(ChaptersOnTokens, ACheckpointKeepsItsTokenizer) {
  const std::string flags = "--data text.txt --layers 1 ";
  train(program(), flags + "--tokenizer t --steps 2 --save s");
  EXPECT_EQ(std::filesystem::read_symlink(path("s/tokenizer.json")), "current/tokenizer.json");
  EXPECT_EQ(read("s/tokenizer.json"), read("t/tokenizer.json"));
  EXPECT_EQ(read("s/tokenizer_config.json"), read("t/tokenizer_config.json"));
  EXPECT_EQ(nlohmann::json::parse(read("s/config.json"))["eos_token_id"], 299);
  // It is that of the next run, which prints text.
  write("loud", "quiet = false\n");
  const std::string out =
      train(program(), flags + "--load s --steps 3 --sample 200 --config loud").out;
  const std::string sample = out.substr(out.find("---- sample\n"));
  EXPECT_NE(sample.find("night"), std::string::npos) << sample;
  // A run on bytes in its place has none, and no link to one.
  train(program(), flags + "--steps 1 --save s --overwrite");
  EXPECT_FALSE(std::filesystem::is_symlink(path("s/tokenizer.json")));
}

TEST_F(ChaptersOnTokens, WhatDoesNotBelongTogetherIsRefused) {
  train(program(), "--data text.txt --layers 1 --tokenizer t --steps 1 --save s");
  write("bad.json", "{}");
  std::filesystem::create_directory(path("odd"));
  write("odd/tokenizer.json", "{}");
  const auto before = files();
  for (const auto& [flags, says] :
       {std::pair<std::string, std::string>{"--tokenizer none", "none: no such file or directory"},
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
        {"--tokenizer other --data x.bin --tokens uint16", "and the vocabulary has 280"}}) {
    const std::string data = flags.find("--data") == std::string::npos ? " --data text.txt" : "";
    const Ended ended = run(program(), small_run("--layers 1 --steps 2 " + flags + data));
    EXPECT_EQ(ended.status, 2) << flags << "\n" << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
    EXPECT_NE(ended.err.find(says), std::string::npos) << flags << "\n" << ended.err;
  }
  auto after = files();
  std::erase_if(after, [](const auto& file) { return file.first.starts_with("kept/"); });
  auto same = before;
  std::erase_if(same, [](const auto& file) { return file.first.starts_with("kept/"); });
  EXPECT_EQ(after, same);
  const Ended full = run(Program("06_checkpointing", {"env", "LADDER_CACHE=text.txt/kept"}),
                         small_run("--data text.txt --tokenizer t"));
  EXPECT_EQ(full.status, 2);
  EXPECT_NE(full.err.find("LADDER_CACHE=FOLDER names another"), std::string::npos) << full.err;
}

}  // namespace
}  // namespace ladder::test
