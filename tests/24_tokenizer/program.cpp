// The program: what it writes, what it refuses, and that nothing is lost when it does.
#include <algorithm>
#include <string>

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class Tokenizer : public Programs {
 protected:
  Ended call(const std::string& line) const { return run("24_tokenizer", words(line)); }
  void succeed(const std::string& line) const {
    const Ended ended = call(line);
    EXPECT_EQ(ended.status, 0) << line << "\n" << ended.err;
  }
};

TEST_F(Tokenizer, DecodesWhatItEncoded) {
  succeed("train --data text.txt --vocab 300 --out t");
  for (const char* flags : {"", "--threads 3", "--tokens uint32", "--format megatron"}) {
    succeed(std::string("encode --tokenizer t --data text.txt --out x.bin ") + flags);
    succeed("decode --tokenizer t --data x.bin --out back.txt" +
            std::string(std::string_view(flags).starts_with("--tokens") ? " --tokens uint32" : ""));
    EXPECT_EQ(read("back.txt"), read("text.txt")) << flags;
  }
  write("raw", std::string("\xFF\xC3") + "a<|endoftext|>b");
  succeed("encode --tokenizer t --data raw --out x.bin --utf8 bytes");
  succeed("decode --tokenizer t --data x.bin --out back.txt");
  EXPECT_EQ(read("back.txt"), read("raw"));
  succeed("decode --tokenizer t --data x.bin --out back.txt --keep-special");
  EXPECT_EQ(read("back.txt"), read("raw") + "<|endoftext|>");
  succeed("encode --tokenizer t --data raw --out x.bin --utf8 bytes --allow-special");
  succeed("decode --tokenizer t --data x.bin --out back.txt");
  EXPECT_EQ(read("back.txt"),
            "\xFF\xC3"
            "ab");
}

TEST_F(Tokenizer, BothTrainersAndAnyThreadsWriteTheSameFiles) {
  write("more.txt", "the cat sat on the mat. \n\n it's 12345");
  succeed("train --data text.txt more.txt --vocab 290 --out a");
  succeed("train --data more.txt text.txt --vocab 290 --out b --threads 3 --show 0");
  succeed("train --data text.txt more.txt --vocab 290 --out c --trainer plain");
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "ranks.tiktoken"}) {
    EXPECT_EQ(read(std::string("b/") + name), read(std::string("a/") + name)) << name;
    EXPECT_EQ(read(std::string("c/") + name), read(std::string("a/") + name)) << name;
  }
}

TEST_F(Tokenizer, AFullDiskLeavesWhatWasThere) {
  succeed("train --data text.txt --vocab 300 --out t");
  write("x.bin", "old");
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i) + "\n";
  write("long.txt", text);
  const std::map<std::string, std::string> before = files();
  const Program full("24_tokenizer", {"bash", "-c", R"(ulimit -f 1; exec "$@")", "bash"});
  for (const char* line : {"encode --tokenizer t --data long.txt --out x.bin",
                           "encode --tokenizer t --data long.txt --out x.bin --format megatron",
                           "train --data text.txt --vocab 299 --out t"}) {
    const Ended ended = run(full, words(line));
    EXPECT_EQ(ended.status, 2) << line;
    EXPECT_NE(ended.err.find("--out"), std::string::npos) << ended.err;
    EXPECT_EQ(files(), before) << line;
  }
}

TEST_F(Tokenizer, RefusesBadInput) {
  succeed("train --data text.txt --vocab 300 --out t");
  write("bad.txt", "abc\xFFz");
  write("empty.txt", "");
  write("odd.bin", "abc");
  write("high.bin", "\xFF\xFF");
  write("x.bin", "old");
  write("wide.json", "{}");
  const std::map<std::string, std::string> before = files();
  const std::string encode = "encode --tokenizer t --out x.bin --data ";
  for (const auto& [line, says] :
       {std::pair<std::string, std::string>{"", "legal are train, encode, decode"},
        {"learn --data text.txt", "the first word is learn; legal are train, encode, decode"},
        {"train --out n", "--data is missing"},
        {"train --data text.txt", "--out is missing"},
        {"train --data text.txt --out n --vocab 256", "--vocab must be from 257"},
        {"train --data text.txt --out n --ties best", "--ties"},
        {"train --data text.txt --out n --split gpt5", "--split"},
        {"train --data text.txt --out n --threads 0", "--threads must be from 1"},
        {"train --data text.txt --out n --show -1", "--show must be at least 0"},
        {"train --data none.txt --out n", "--data none.txt: no such file"},
        {"train --data bad.txt --out n", "--data bad.txt: byte 3 is not valid UTF-8"},
        {"train --data empty.txt --out n", "holds no text"},
        {"train --data text.txt --out text.txt/n", "cannot be made"},
        {encode + "bad.txt", "byte 3 is not valid UTF-8; --utf8 bytes"},
        {encode + "empty.txt", "holds no text"},
        {encode + "text.txt --tokens bytes", "--tokens"},
        {"encode --tokenizer t --data text.txt --format megatron --out x",
         "a name that ends in .bin"},
        {"encode --data text.txt --out x.bin", "--tokenizer is missing"},
        {"encode --data text.txt --out x.bin --tokenizer none", "none: no such file or directory"},
        {"encode --data text.txt --out x.bin --tokenizer wide.json", "wide.json: no model"},
        {"encode --data text.txt --out x.bin --tokenizer bad.txt", "no file of a tokenizer; legal"},
        {"encode --data text.txt --out x.bin --tokenizer t/ranks.tiktoken", "ranks do not say"},
        {"encode --data text.txt --out x.bin --tokenizer t --split x", "--split x; legal are gpt2"},
        {"encode --tokenizer t --data bad.txt text.txt --out ./text.txt",
         "would write in --data text.txt"},
        {"encode --tokenizer t --data text.txt --out t/vocab.json", "would write in --tokenizer t"},
        {"decode --tokenizer t --data x.bin --out x.bin", "would write in --data x.bin"},
        {"decode --tokenizer t --data odd.bin --out x.bin", "3 bytes are no whole number"},
        {"decode --tokenizer t --data high.bin --out x.bin", "token 0 is 65535"}}) {
    const Ended ended = call(line);
    EXPECT_EQ(ended.status, 2) << line;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << line << "\n" << ended.err;
    EXPECT_NE(ended.err.find(says), std::string::npos) << line << "\n" << ended.err;
    EXPECT_EQ(files(), before) << line;
  }
}

}  // namespace
}  // namespace ladder::test
