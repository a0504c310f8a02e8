// Files to train on that hold tokens of other programs. What is refused: ../common/data_format.cpp.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class DataFiles : public Programs, public ::testing::WithParamInterface<std::string> {
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
};
INSTANTIATE_TEST_SUITE_P(Of, DataFiles, ::testing::ValuesIn(some_chapters_from("01_sgd")),
                         chapter_name);

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

TEST_P(DataFiles, TheVocabularySetsTheModelAndTheSample) {
  std::string tokens;
  for (int i = 0; i < 2000; ++i) tokens += number(static_cast<uint32_t>(i % 300));
  write("tokens.bin", tokens);
  // Programs of ranks write no text.
  const bool writes = GetParam() == "01_sgd";
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
