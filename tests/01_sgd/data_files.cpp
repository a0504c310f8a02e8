// Files to train on, as they come: pipes, devices, and tokens of other programs.
#include <algorithm>

#include <sys/stat.h>

#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class DataFiles : public Refusals {
 protected:
  /// The bytes of a text as numbers of `width` bytes.
  static std::string widened(const std::string& text, size_t width) {
    std::string tokens;
    for (const char byte : text) tokens += byte + std::string(width - 1, '\0');
    return tokens;
  }
  static std::string number(uint32_t value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
  }
  /// What llm.c writes before that many tokens.
  static std::string header(uint32_t magic, uint32_t version, size_t count) {
    std::string bytes = number(magic) + number(version) + number(static_cast<uint32_t>(count));
    bytes.resize(1024);
    return bytes;
  }
  /// The trace of a run that has read `data` so.
  std::string trace(const std::string& data, const std::string& flags = "") const {
    train(GetParam(), "--steps 2 --layers 1 --trace trace.jsonl --data " + data + " " + flags);
    return read("trace.jsonl");
  }
  /// A run of which `line` of a shell redirects the standard input.
  Ended run_with_input(const std::string& line) const {
    return run(Program(GetParam(), {"sh", "-c", line, "sh"}),
               small_run("--steps 2 --layers 1 --trace trace.jsonl --data /dev/stdin"));
  }
};
INSTANTIATE_TEST_SUITE_P(Of, DataFiles, ::testing::ValuesIn(some_chapters_from("01_sgd")),
                         chapter_name);

// In a folder of its own, as files() reads the others.
TEST_P(DataFiles, PipesAndDevicesAreRefusedAtOnce) {
  const TempDir dir;
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string legal = ": cannot be read: not a regular file";
  expect_refused({{"--data " + pipe, pipe + legal},
                  {"--data /dev/zero", "/dev/zero" + legal},
                  {"--data " + dir.path(), legal},
                  {"--data nowhere", "nowhere: no such file"}});
  expect_refused({{"--load " + pipe, "neither a file nor a directory"},
                  {"--load /dev/zero", "neither a file nor a directory"}});
}

TEST_P(DataFiles, StandardInputIsReadIfItIsAFile) {
  const std::string want = trace("text.txt");
  const Ended file = run_with_input("exec \"$@\" < text.txt");
  EXPECT_EQ(file.status, 0) << file.err;
  EXPECT_EQ(read("trace.jsonl"), want);
  const Ended pipe = run_with_input("cat text.txt | \"$@\"");
  EXPECT_EQ(pipe.status, 2);
  EXPECT_EQ(pipe.err, "error: --data /dev/stdin: cannot be read: not a regular file\n");
}

TEST_P(DataFiles, TokensThatAreTheBytesOfATextTrainAlike) {
  const std::string text = read("text.txt"), want = trace("text.txt");
  const std::string two = widened(text, 2), four = widened(text, 4);
  write("two.bin", two);
  write("four.bin", four);
  write("gpt2.bin", header(20240520, 1, text.size()) + two);
  write("llama3.bin", header(20240801, 7, text.size()) + four);
  for (const std::string data :
       {"two.bin --tokens uint16", "four.bin --tokens uint32", "gpt2.bin", "llama3.bin",
        "gpt2.bin --tokens uint16", "llama3.bin --tokens uint32", "text.txt --tokens bytes"})
    EXPECT_EQ(trace(data), want) << data;
  EXPECT_NE(trace("two.bin", "--tokens bytes"), want);  // the negative control
}

TEST_P(DataFiles, OtherTokensThanSaidAreRefused) {
  const std::string text = read("text.txt"), two = widened(text, 2);
  write("two.bin", two);
  write("four.bin", widened(text, 4));
  write("odd.bin", two + "x");
  write("large.bin", two + "\x2C\x01");  // 300
  write("gpt2.bin", header(20240520, 1, text.size()) + two);
  write("newer.bin", header(20240520, 2, text.size()) + two);
  write("cut.bin", header(20240520, 1, text.size() + 1) + two);
  expect_refused(
      {{"--data two.bin", "has bytes that are 0, so it is no text; --tokens uint16 or uint32"},
       {"--data four.bin", "has bytes that are 0, so it is no text; --tokens uint16 or uint32"},
       {"--data text.txt --tokens uint16", "looks like text and not like --tokens uint16"},
       {"--data odd.bin --tokens uint16", "8001 bytes are no whole number of --tokens uint16"},
       {"--data large.bin --tokens uint16",
        "token 4000 is 300, and the vocabulary has 256; --vocab or --tokenizer sets another"},
       {"--data gpt2.bin --tokens uint32", "its header of llm.c says uint16, not --tokens uint32"},
       {"--data newer.bin", "of version 2; only version 1 can be read"},
       {"--data cut.bin", "with 4001 tokens takes 9026 bytes, and it has 9024"},
       {"--data two.bin --tokens uint8", "{auto,bytes,uint16,uint32}"},
       {"--vocab 255", "--vocab must be from 256 to 1048576, not 255"},
       {"--vocab 1048577", "--vocab must be from 256 to 1048576, not 1048577"}});
  train(GetParam(), "--layers 1 --data large.bin --tokens uint16 --vocab 301");
}

TEST_P(DataFiles, TheVocabularySetsTheModelAndTheSample) {
  std::string tokens;
  for (int i = 0; i < 2000; ++i) tokens += number(static_cast<uint32_t>(i % 300));
  write("tokens.bin", tokens);
  // Programs of ranks write no text.
  const bool writes = std::ranges::count(chapters_of_one_rank(), GetParam()) > 0;
  const Ended ended = train(GetParam(),
                            "--steps 1 --layers 1 --data tokens.bin --tokens uint32 --vocab 300 "
                            "--save saved --trace trace.jsonl" +
                                std::string(writes ? " --sample 3" : ""));
  EXPECT_EQ(nlohmann::json::parse(read("saved/current/checkpoint.json"))["model"]["vocab"], 300);
  if (!writes) return;
  const std::string out = ended.out, begin = "---- sample\n";
  ASSERT_NE(out.find(begin), std::string::npos) << out;
  const std::string sample = out.substr(out.find(begin) + begin.size());
  const auto numbers = words(sample.substr(0, sample.find('\n')));
  ASSERT_EQ(numbers.size(), 3u) << sample;
  for (const std::string& n : numbers) EXPECT_LT(std::stoi(n), 300) << sample;
}

}  // namespace
}  // namespace ladder::test
