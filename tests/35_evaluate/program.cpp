// The program: a score depends on the model and on its text, and on nothing else. Each
// log-likelihood is the one that a text alone has in the window, by chapter 31's decoder; and
// mistakes that people make are seen.
#include <cmath>
#include <string>
#include <vector>

#include "chapters/31_generate/decode.h"
#include "chapters/31_generate/open.h"
#include "chapters/35_evaluate/requests.h"
#include "chapters/35_evaluate/tasks.h"
#include "common/run/backend.h"
#include "common/run/model_in.h"
#include "common/run/options.h"
#include "tests/common/memory.h"
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

const std::string k35 = "35_evaluate";
constexpr int64_t kWindow = 256;

class Evaluate : public Programs {
 protected:
  Evaluate() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * i) + " of the text\n";
    write("text.txt", text);
    const std::string x(200, 'x');
    write("t.jsonl", R"({"context":"line 4 of","choices":["the text","thext","it"],"gold":0}
{"context":")" + x + R"( and\n","choices":["the rest of it","line"],"gold":1}
{"context":"","choices":["line 9","caf\u00e9s"],"gold":1}
)");
    write("u.jsonl", R"({"context":"line 16 of the","target":" text"}
)" + nlohmann::json{{"text", text.substr(0, 700)}}.dump() +
                         R"(
{"context":"line 25 ","target":"of","until":[" ","\n"],"max_tokens":20}
{"context":"line","target":"of","until":[],"max_tokens":20}
)");
  }
  void save(const std::string& model, const std::string& name, const std::string& more = "") const {
    train("21_moe", model + " --steps 8 --batch 2 --lr 0.01 --save " + name + " " + more);
  }
  /// --out of both files.
  std::string lines(const std::string& flags, const std::string& load = "a") const {
    succeed(k35, "--load " + load +
                     " --tasks t.jsonl u.jsonl --seq-len 256 --out o.jsonl --report r.json " +
                     flags);
    return read("o.jsonl");
  }
  std::vector<nlohmann::json> parsed(const std::string& flags = "") const {
    lines(flags);
    return json_lines("o.jsonl");
  }
};

const std::vector<std::string> kModels = {
    "--model small --layers 2 --channels 32 --heads 4 --seq-len 256",
    "--model llama-tiny --layers 2 --channels 32 --seq-len 256"};

TEST_F(Evaluate, AScoreDependsOnNothingElse) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    save(model, "a");
    save(model, "b", "--seed 9");
    const std::string want = lines("");
    for (const char* flags : {"--row-documents 1", "--row-documents 1 --batch 1", "--batch 2",
                              "--row-documents 2 --batch 3 --threads 3", "--batch 1 --threads 2"})
      EXPECT_EQ(lines(flags), want) << flags;
    EXPECT_NE(lines("", "b"), want);
    const std::string bf16 = lines("--precision bf16");
    EXPECT_EQ(lines("--precision bf16 --row-documents 1"), bf16);
    EXPECT_NE(bf16, want);
  }
}

/// Lines in another order, and among others: each keeps its numbers.
TEST_F(Evaluate, NeitherOrderNorNeighborsCount) {
  save(kModels[1], "a");
  const std::vector<nlohmann::json> want = parsed();
  const std::vector<std::string> tasks = text_lines("t.jsonl");
  write("t.jsonl", fmt::format("{}\n{}\n{}\n{}\n", tasks[2], tasks[1], tasks[1], tasks[0]));
  const std::vector<nlohmann::json> got = parsed();
  for (const auto& [now, before] : {std::pair{0, 2}, {1, 1}, {2, 1}, {3, 0}})
    EXPECT_EQ(got[now]["loglikelihoods"], want[before]["loglikelihoods"]) << now;
}

/// Log-likelihoods of texts alone, by the decoder.
class Alone {
 public:
  Alone(const std::string& load, int64_t window) : gpt_(model_in("--load", load, window)) {
    run_.threads = 1;
    ctx_ = make_ctx(run_, arena_, nullptr);
    model_.emplace(arena_, gpt_, PrecisionOptions{});
    model_->load(ctx_, load);
    cache_.emplace(arena_, gpt_, 1, window, Dtype::F32);
    decoder_.emplace(arena_, gpt_, model_->w, model_->balance, &*cache_, PassSize{window, window},
                     Dtype::F32);
  }
  /// Of the last `scored` tokens. @param late positions by which the logits that are read are late
  double operator()(const Request& request, int64_t late = 0) {
    const std::vector<int32_t>& all = request.tokens;
    const int64_t L = request.positions(), n = request.scored;
    std::vector<int32_t> read(all.begin(), all.end() - 1);
    if (late > 0) read.push_back(all.back());
    const Tensor logits =
        decoder_->forward(ctx_, std::vector<TextRows>{{0, 0, read, {L - n + late, L + late}}});
    std::copy(all.end() - n, all.end(), targets_.data<int32_t>());
    head_loss(ctx_, losses_.first(n), logits.view({n, 1, logits.dim(1)}), targets_.first(n),
              gpt_.vocab);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += -losses_.data<float>()[i];
    return sum;
  }

 private:
  GptConfig gpt_;
  RunOptions run_;
  Arena arena_;
  Ctx ctx_;
  std::optional<OpenModel> model_;
  std::optional<KvCache> cache_;
  std::optional<Decoder> decoder_;
  Tensor targets_ = arena_.alloc(Mem::Activation, "targets", Dtype::I32, {gpt_.seq_len, 1});
  Tensor losses_ = arena_.alloc(Mem::Activation, "losses", Dtype::F32, {gpt_.seq_len});
};

TEST_F(Evaluate, TheBitsOfATextAlone) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    save(model, "a");
    const std::vector<nlohmann::json> got = parsed();
    const std::string load = path("a").string();
    Alone alone(load, kWindow);
    const TextCodec codec({}, load, 256);
    const Requests requests(codec, {}, kWindow);
    const std::vector<Task> tasks =
        read_tasks({path("t.jsonl").string(), path("u.jsonl").string()}, 0);
    int own_borders = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].kind == TaskKind::Generate) continue;
      for (size_t c = 0; c < tasks[i].choices.size(); ++c) {
        const double ours = got[i]["loglikelihoods"][c];
        if (tasks[i].kind == TaskKind::Rolling) {
          double sum = 0;
          for (const Request& one : requests.windows(tasks[i].answer())) sum += alone(one);
          EXPECT_EQ(ours, sum);
          continue;
        }
        const Request one = requests.pair(tasks[i].context, tasks[i].behind(tasks[i].choices[c]));
        EXPECT_EQ(ours, alone(one)) << tasks[i].name;
        EXPECT_NE(ours, alone(one, 1)) << "a position late";
        Request padded = one;
        padded.tokens.push_back(0);
        ++padded.scored;
        EXPECT_NE(ours, alone(padded)) << "padding in the sum";
        own_borders += ours != Alone(load, one.positions())(one) ? 1 : 0;
      }
    }
    EXPECT_GT(own_borders, 0) << "borders of its own length";
  }
}

/// What chapter 31 says of a text that it writes is what this chapter says of that text.
TEST_F(Evaluate, AsChapter31SaysOfItsOwnTexts) {
  save(kModels[0], "a");
  write("p.jsonl", "{\"prompt\":\"line 4 of\"}\n");
  succeed(
      "31_generate",
      "--load a --seq-len 256 --prompts p.jsonl --out w.jsonl --max-tokens 30 --temperature 0.5");
  const nlohmann::json written = nlohmann::json::parse(read("w.jsonl"));
  std::string ids, prompt;
  for (const int token : written["tokens"]) ids += " " + std::to_string(token);
  for (const char c : std::string("line 4 of")) prompt += " " + std::to_string(static_cast<int>(c));
  write("t.jsonl", nlohmann::json{{"context", prompt}, {"target", ids}}.dump() + "\n");
  succeed(k35, "--load a --tasks t.jsonl --seq-len 256 --tokens ids --out o.jsonl");
  double sum = 0;
  for (const float one : written["logprobs"]) sum += one;
  EXPECT_EQ(nlohmann::json::parse(read("o.jsonl"))["loglikelihoods"][0], sum);
}

/// With a tokenizer: whole texts are encoded, so pieces apart have other numbers.
TEST_F(Evaluate, PiecesAreEncodedTogether) {
  succeed("24_tokenizer", "train --data text.txt --vocab 300 --out bpe");
  save(kModels[1], "a", "--tokenizer bpe");
  const std::vector<nlohmann::json> got = parsed();
  const std::string load = path("a").string();
  Alone alone(load, kWindow);
  const TextCodec codec({}, load, model_in("--load", load, kWindow).vocab);
  std::vector<int32_t> apart = codec.encode("line 4 of");
  const size_t before = apart.size();
  for (const char* piece : {" ", "the text"})
    for (const int32_t token : codec.encode(piece)) apart.push_back(token);
  const int64_t scored = std::ssize(apart) - static_cast<int64_t>(before);
  EXPECT_EQ(got[0]["loglikelihoods"][0],
            alone(Requests(codec, {}, kWindow).pair("line 4 of", " the text")));
  EXPECT_NE(got[0]["loglikelihoods"][0], alone({apart, scored}));
}

TEST_F(Evaluate, TextsUpToAStop) {
  save(kModels[0], "a");
  const std::vector<nlohmann::json> got = parsed();
  const std::string free = got[6]["text"], stopped = got[5]["text"];
  EXPECT_EQ(free.size(), 20u);
  EXPECT_EQ(stopped.find_first_of(" \n"), std::string::npos);
  nlohmann::json asked{{"context", "line"}, {"target", free}, {"max_tokens", 20}};
  asked["until"] = nlohmann::json::array();
  write("t.jsonl", asked.dump() + "\n");
  EXPECT_EQ(parsed()[0]["scores"]["exact_match"], 1);
  EXPECT_EQ(got[6]["scores"]["exact_match"], 0);
}

TEST_F(Evaluate, WhatIsCounted) {
  save(kModels[1], "a");
  const auto report = [&](const std::string& flags) {
    lines(flags);
    return nlohmann::json::parse(read("r.json"));
  };
  for (const char* flags : {"", "--batch 3 --precision bf16", "--row-documents 1"})
    EXPECT_TRUE(counted(report(flags), "report")) << flags;
  const nlohmann::json packed = report(""), alone = report("--row-documents 1");
  EXPECT_EQ(alone["rows"], alone["texts"]);
  EXPECT_EQ(alone["positions"], packed["positions"]);
  EXPECT_LT(packed["rows"], alone["rows"]);
  // 8 of choices, one target, and 700 bytes in windows of 256.
  EXPECT_EQ(packed["texts"], 7 + 1 + 3);
  EXPECT_EQ(packed["files"][0]["scores"]["acc"]["whole"], 3);
  EXPECT_EQ(packed["files"][1]["scores"]["bits_per_byte"]["whole"], 700);
}

class EvaluateRefuses : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Program, EvaluateRefuses, ::testing::Values(k35), chapter_name);

TEST_P(EvaluateRefuses, BadInput) {
  train("21_moe", "--model llama-nano --layers 1 --steps 1 --save m");
  train("21_moe", "--model llama-nano --layers 1 --vocab 300 --steps 1 --save v");
  train("21_moe", "--model moe-nano --layers 1 --steps 1 --save x");
  const std::string task = "{\"context\":\"a\",\"choices\":[\"b\",\"c\"],\"gold\":0}\n";
  write("t.jsonl", task + "{\"context\":\"b\",\"target\":\"c\"}\n");
  write("empty.jsonl", "");
  write("bad.jsonl", task + "{\"context\":\"a\"}\n");
  write("gold.jsonl", "{\"context\":\"a\",\"choices\":[\"b\",\"c\"],\"gold\":2}\n");
  write("blank.jsonl", "{\"context\":\"a\",\"choices\":[\"b\",\"\"],\"gold\":0}\n");
  write("nothing.jsonl", task + "{\"text\":\"\"}\n");
  write("long.jsonl", task + "{\"context\":\"a\",\"target\":\"0123456789abcdefg\"}\n");
  write("write.jsonl", "{\"context\":\"a\",\"target\":\"b\",\"until\":[],\"max_tokens\":16}\n");
  for (const auto& [line, says] : refused_rows(LADDER_REFUSED, GetParam()))
    expect_refused(words(line), says);
}

}  // namespace
}  // namespace ladder::test
