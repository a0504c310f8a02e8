// The program: a text depends on the model, the prompt and the draw, and on nothing else.
#include <algorithm>
#include <string>
#include <vector>

#include "common/model/config.h"
#include "kernels/arena.h"
#include "tests/common/memory.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

const std::string k31 = "31_generate";

/// Models of each kind, and windows of 256 tokens or more.
struct Kind {
  std::string model, window;
};
const std::vector<Kind> kKinds = {{"--model small --layers 2 --channels 32 --heads 4", ""},
                                  {"--model llama-tiny --layers 2 --channels 32", " --seq-len 320"},
                                  {"--model moe-tiny --layers 2 --channels 32", " --seq-len 256"}};

class Generate : public Programs {
 protected:
  Generate() {
    write("p.jsonl",
          "{\"prompt\":\"In the beginning\"}\n{\"prompt\":\"\"}\n{\"prompt\":\"And \"}\n"
          "{\"prompt\":\"" +
              std::string(150, 'x') + " and the rest\"}\n{\"prompt\":\"1\"}\n");
  }
  void save(const Kind& kind, const std::string& name, const std::string& more = "") const {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i) + " of the text\n";
    write("text.txt", text);
    train("21_moe",
          kind.model + kind.window + " --steps 3 --batch 2 --lr 0.01 --save " + name + " " + more);
  }
  /// The lines of --out.
  std::string lines(const std::string& flags, const std::string& load = "a") const {
    succeed(k31, "--load " + load + " --prompts p.jsonl --out o.jsonl --max-tokens 40 " + flags);
    return read("o.jsonl");
  }
  nlohmann::json counts(const std::string& flags) const {
    lines(flags + " --report r.json");
    return nlohmann::json::parse(read("r.json"));
  }
};

TEST_F(Generate, ATextDependsOnNothingElse) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.model);
    const std::string& window = kind.window;
    save(kind, "a");
    save(kind, "b", "--seed 9");
    const std::string want = lines(window);
    for (const char* flags : {"--no-cache", "--no-cache --batch 1", "--prefill-tokens 1",
                              "--prefill-tokens 7 --batch 3", "--batch 1 --threads 2",
                              "--batch 3 --threads 3", "--draft a --draft-tokens 3", "--draft b",
                              "--draft b --draft-tokens 7 --batch 2 --prefill-tokens 7"})
      EXPECT_EQ(lines(flags + window), want) << flags;
    EXPECT_NE(lines("--seed 2" + window), want);
    EXPECT_NE(lines(window, "b"), want);
    for (const std::string how : {"--precision bf16",
                                  "--answers 3 --top-k 40 --top-p 0.9 --min-p "
                                  "0.05 --repetition-penalty 1.3 --temperature 0.7"}) {
      const std::string base = lines(how + window);
      for (const char* flags : {" --no-cache", " --batch 2 --draft b", " --prefill-tokens 5"})
        EXPECT_EQ(lines(how + flags + window), base) << how << flags;
    }
  }
}

/// Prompts in another order: each line keeps its text, because its noise is that of its line.
/// So the same prompt in another line has another text; greedily it has the same.
TEST_F(Generate, LinesAreApart) {
  save(kKinds[0], "a");
  write("p.jsonl", "{\"prompt\":\"And \"}\n{\"prompt\":\"And \"}\n");
  const auto texts = [&](const std::string& flags) {
    lines(flags);
    const auto both = json_lines("o.jsonl");
    return std::pair{both.at(0), both.at(1)};
  };
  const auto [one, other] = texts("");
  EXPECT_NE(one["text"], other["text"]);
  const auto [greedy, again] = texts("--temperature 0");
  EXPECT_EQ(greedy["text"], again["text"]);
  EXPECT_EQ(greedy["tokens"].size(), 40u);
  EXPECT_EQ(greedy["logprobs"].size(), 40u);
  EXPECT_EQ(greedy["end"], "length");
}

TEST_F(Generate, StopTextsAreLeftOut) {
  save(kKinds[0], "a");
  const auto first = [&](const std::string& flags) {
    lines("--temperature 0 " + flags);
    return json_lines("o.jsonl").at(0);
  };
  // Numbers instead of bytes: any text can be given on a command line.
  write("p.jsonl", "{\"prompt\":\"73 110\"}\n");
  const auto text = first("--tokens ids")["text"].get<std::string>();
  const std::string third = text.substr(0, text.find(' ', text.find(' ') + 1));
  const std::string stop = third.substr(third.find(' ') + 1);
  const nlohmann::json stopped = first("--tokens ids --stop " + stop);
  EXPECT_EQ(stopped["end"], "stop");
  EXPECT_EQ(stopped["text"], text.substr(0, text.find(stop)));
}

TEST_F(Generate, AWindowThatIsFullEndsTheText) {
  save(kKinds[0], "a");
  succeed(k31, "--load a --prompts p.jsonl --out w.jsonl --max-tokens 1000");
  const nlohmann::json first = json_lines("w.jsonl").at(0);
  EXPECT_EQ(first["end"], "window");
  EXPECT_EQ(first["tokens"].size(), 256u - 16);
}

/// Bytes as the formula says; a prompt is computed once for all answers; a draft that is the model
/// itself is always right.
TEST_F(Generate, WhatIsCounted) {
  save(kKinds[1], "a");
  const std::string& window = kKinds[1].window;
  for (const char* flags : {"", "--no-cache", "--draft a", "--precision bf16 --batch 3"}) {
    EXPECT_TRUE(counted(counts(flags + window), "report")) << flags;
  }
  const auto bytes = [&](int batch) {
    return counts("--batch " + std::to_string(batch) +
                  window)["memory"][0]["Activation"]["measured"]
        .get<int64_t>();
  };
  // 2 L NKV HS numbers for each of T tokens, a row of the pass with its logits, and 8 bytes.
  const int64_t C = 32, T = 320, L = 2, NKV = 2, HS = 8, F = 384, V = 256;
  const int64_t row = 4 * C + (C + 2 * NKV * HS) + 3 * F + 2 + C + V;
  EXPECT_EQ(bytes(3) - bytes(2), 4 * (T * 2 * L * NKV * HS + row) + 8);

  const nlohmann::json one = counts(window), three = counts("--answers 3" + window);
  const int64_t prompts = one["prefilled"], lines = 5;
  EXPECT_EQ(three["prefilled"], prompts + 2 * lines);  // the last token of each
  EXPECT_EQ(three["shared"], 2 * (prompts - lines));
  EXPECT_EQ(three["drawn"], 3 * one["drawn"].get<int64_t>());

  const nlohmann::json always = counts("--draft a --draft-tokens 3" + window);
  EXPECT_EQ(always["accepted"], always["proposed"]);
  EXPECT_LT(always["passes"].get<int64_t>(), one["passes"].get<int64_t>() / 3);
  EXPECT_EQ(always["one_minus_tv"], 1);
  EXPECT_EQ(always["tokens_a_pass_expected"], 4);
  save(kKinds[1], "b", "--seed 9");
  const nlohmann::json sometimes = counts("--draft b --draft-tokens 3" + window);
  EXPECT_LT(sometimes["acceptance"], sometimes["one_minus_tv"]);
  EXPECT_LT(sometimes["one_minus_tv"], 1);
}

class GenerateRefuses : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Program, GenerateRefuses, ::testing::Values(k31), chapter_name);

TEST_P(GenerateRefuses, BadInput) {
  train("21_moe", "--model llama-nano --layers 1 --steps 1 --save m");
  train("21_moe", "--model llama-nano --layers 1 --vocab 300 --steps 1 --save v");
  train("21_moe", "--model moe-nano --layers 1 --shared-experts 1 --steps 1 --save x");
  write("p.jsonl", "{\"prompt\":\"a\"}\n");
  write("long.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\"0123456789abcdef\"}\n");
  write("bad.jsonl", "{\"prompt\":\"a\"}\n{\"text\":\"a\"}\n");
  write("empty.jsonl", "");
  for (const auto& [line, says] : refused_rows(LADDER_REFUSED, GetParam()))
    expect_refused(words(line), says);
}

}  // namespace
}  // namespace ladder::test
