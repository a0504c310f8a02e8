// The program: what it writes, what it refuses, and that nothing is lost when it does.
#include <string>

#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class Tokenizer : public Programs {
 protected:
  void succeed(const std::string& line) const { Programs::succeed("24_tokenizer", line); }
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
  succeed("encode --tokenizer t --data raw --out x.bin --utf8 bytes --allow-special");
  succeed("decode --tokenizer t --data x.bin --out back.txt");
  EXPECT_EQ(read("back.txt"),
            "\xFF\xC3"
            "ab");
}

TEST_F(Tokenizer, AnyThreadsWriteTheSameFiles) {
  write("more.txt", "the cat sat on the mat. \n\n it's 12345");
  succeed("train --data text.txt more.txt --vocab 290 --out a");
  succeed("train --data more.txt text.txt --vocab 290 --out b --threads 3 --show 0");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "ranks.tiktoken"})
    EXPECT_EQ(read(std::string("b/") + name), read(std::string("a/") + name)) << name;
}

TEST_F(Tokenizer, AFullDiskLeavesWhatWasThere) {
  succeed("train --data text.txt --vocab 300 --out t");
  write("x.bin", "old");
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += "line " + std::to_string(i) + "\n";
    if (i == 150) write("short.txt", text);  // its tokens fill no buffer: commit() writes them
  }
  write("long.txt", text);
  const std::map<std::string, std::string> before = files();
  const Program full("24_tokenizer", {"bash", "-c", R"(ulimit -f 1; exec "$@")", "bash"});
  for (const char* line : {"encode --tokenizer t --data long.txt --out x.bin",
                           "encode --tokenizer t --data long.txt --out x.bin --format megatron",
                           "encode --tokenizer t --data short.txt --out x.bin --format megatron",
                           "train --data text.txt --vocab 299 --out t"}) {
    const Ended ended = run(full, words(line));
    EXPECT_EQ(ended.status, 2) << line;
    EXPECT_NE(ended.err.find("--out"), std::string::npos) << ended.err;
    EXPECT_EQ(files(), before) << line;
  }
}

class TokenizerRefuses : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Program, TokenizerRefuses, ::testing::Values("24_tokenizer"),
                         chapter_name);

TEST_P(TokenizerRefuses, BadInput) {
  run(GetParam(), words("train --data text.txt --vocab 300 --out t"));
  write("bad.txt", "abc\xFFz");
  write("empty.txt", "");
  write("odd.bin", "abc");
  write("high.bin", "\xFF\xFF");
  write("x.bin", "old");
  write("wide.json", "{}");
  write("y.idx", "text");
  write("b.partial", "text");
  std::filesystem::create_directory(path("m"));
  for (const char* name : {"text.txt", "config.json", "tokenizer.json"})
    write(std::string("m/") + name, "text");
  for (const auto& [line, says] : refused_rows(LADDER_REFUSED, GetParam()))
    expect_refused(words(line), says);
}

}  // namespace
}  // namespace ladder::test
