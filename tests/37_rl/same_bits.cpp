// 37_rl: who draws and who trains have the same bits, whatever layout each has; the first loss of
// DPO is log 2; what would break this is seen.
#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "tests/37_rl/runs.h"
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

TEST_F(Rl, TheRatioIsOneOnAnyLayout) {
  for (const std::string model : {"--model tiny", "--model llama-tiny"}) {
    save_base(model);
    for (const std::string what :
         {"--lr 3e-4 ", "--lr 3e-4 --draw-temperature 0.7 --precision bf16 ",
          "--lr 3e-4 --kl 0.2 --advantage mean "}) {
      const Trace one = trained(what + "--rollouts drawn.jsonl");
      for (const char* layout :
           {"--ranks 2 --threads 2", "--ranks 4 --places 1", "--micro-batch 1 --places 3",
            "--recompute full --places 7", "--ranks 2 --micro-batch 1 --bucket-mb 0",
            "--role train --rollouts drawn.jsonl --ranks 2"}) {
        EXPECT_TRUE(same_trace(one, trained(what + layout))) << model << what << layout;
        for (const std::string& line : text_lines("trace.jsonl")) {
          EXPECT_NE(line.find(R"("kl":"0x0p+0")"), std::string::npos) << line;
          EXPECT_NE(line.find(R"("ratio_max":"0x1p+0")"), std::string::npos) << line;
        }
        for (const TraceStep& step : one.steps) EXPECT_GT(std::stod(step.grad_norm), 0);
      }
    }
  }
}

TEST_F(Rl, SeveralUpdatesClipAndGoOnFromBetweenThem) {
  save_base("--model tiny");
  const std::string flags = "--updates 4 --lr 0.001 ";
  const Trace all = trained(flags);
  const std::vector<double> ratios = told("ratio_max"), clipped = told("clipped");
  EXPECT_EQ(ratios[0], 1);
  EXPECT_GT(ratios[1], 1);
  EXPECT_GT(ratios[3], 1.28);
  EXPECT_EQ(clipped[0], 0);
  EXPECT_GT(clipped[3], 0);
  const Trace first = trained(flags + "--save half --micro-batch 2", {0, 3});
  EXPECT_TRUE(same_trace(all, joined(first, trained(flags + "--load half --ranks 2", {3, 4}))));
  // A checkpoint of one update a rollout holds no answers to go on with.
  train(k37, kGrpo + "--steps 3 --save other");
  expect_refused(k37, kGrpo + flags + "--steps 4 --load other", "holds a rollout of 0 answers");
}

// One program draws and another trains, step by step.
TEST_F(Rl, TwoProgramsAreAsOne) {
  save_base("--model tiny");
  const Trace one = trained("", {0, 2});
  std::string load;
  Trace two{.range = {0, 0}, .steps = {}};
  for (int64_t step = 0; step < 2; ++step) {
    const std::string here = fmt::format("at{}", step);
    train(k37, kGrpo + load +
                   fmt::format("--steps {} --role sample --rollouts r.jsonl --places 3", step + 1));
    const Trace next = trained(load + "--role train --rollouts r.jsonl --ranks 2 --save " + here,
                               {step, step + 1});
    two = step == 0 ? next : joined(two, next);
    load = "--load " + here + " ";
  }
  EXPECT_TRUE(same_trace(one, two));
}

// Whoever draws may write answers in any order. With another reward for one of them it is seen.
TEST_F(Rl, TheOrderOfAnswersChangesNothing) {
  save_base("--model tiny");
  const Trace one = trained("--rollouts drawn.jsonl");
  std::vector<std::string> lines = text_lines("drawn.jsonl");
  const auto trained_on = [&](const std::vector<std::string>& answers) {
    write("r.jsonl", fmt::format("{}\n", fmt::join(answers, "\n")));
    return trained("--role train --rollouts r.jsonl");
  };
  std::ranges::reverse(lines);
  std::ranges::rotate(lines, lines.begin() + 7);
  EXPECT_TRUE(same_trace(one, trained_on(lines)));
  auto other = nlohmann::json::parse(lines[0]);
  other["reward"] = 3;
  lines[0] = other.dump();
  EXPECT_TRUE(different_trace(one, trained_on(lines)));
}

TEST_F(Rl, DpoBeginsWithLogTwo) {
  for (const std::string model : {"--model tiny", "--model llama-tiny"}) {
    save_base(model);
    const Trace one = trace(k37, kDpo + "--loss dpo");
    EXPECT_EQ(one.steps[0].loss, "0x1.62e43p-1");
    EXPECT_GT(std::stod(one.steps[0].grad_norm), 0);
    EXPECT_LT(std::stod(one.steps[3].loss), std::stod(one.steps[0].loss));
    for (const char* layout : {"--ranks 2", "--ranks 4", "--micro-batch 1 --recompute full"})
      EXPECT_TRUE(same_trace(one, trace(k37, kDpo + "--loss dpo " + layout))) << layout;
    const Trace first = trace(k37, kDpo + "--loss dpo --save half", {0, kHalf});
    EXPECT_TRUE(same_trace(one, joined(first, trace(k37, kDpo + "--loss dpo --load half --ranks 2",
                                                    {kHalf, kSteps}))));
    std::filesystem::remove_all(path("half"));
    const Trace norm = trace(k37, kDpo + "--loss dpo-norm"), ipo = trace(k37, kDpo + "--loss ipo");
    EXPECT_EQ(norm.steps[0].loss, one.steps[0].loss);
    EXPECT_EQ(std::stod(ipo.steps[0].loss), 25);  // 1 / (2 beta), squared
    EXPECT_TRUE(different_trace(one, norm));
    EXPECT_TRUE(different_trace(norm, ipo));
  }
}

// Controls: keys with the chunks of another window, weights of another step, another temperature.
TEST_F(Rl, WhatIsNotOnPolicyIsSeen) {
  train("36_finetune",
        "--model small --layers 2 --heads 2 --channels 64 --seq-len 128 --data chats.jsonl "
        "--batch 8 --steps 20 --lr 0.005 --save base");
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += fmt::format("{{\"prompt\": \"{}{}\", \"answer\": \"7\"}}\n", std::string(30, 'a'), i);
  write("tasks.jsonl", lines);
  const std::string tasks = "--model tiny --data tasks.jsonl --group 4 --max-tokens 8 ";
  train(k37, tasks + "--base base --steps 1 --lr 0.01 --save later");
  const auto ratio = [&](const std::string& drawn, const std::string& learned) {
    train(k37, tasks + "--role sample --rollouts r.jsonl " + drawn);
    run_of(tasks + "--role train --rollouts r.jsonl " + learned, {0, 1});
    return std::pair(told("ratio_max")[0], told("kl")[0]);
  };
  const std::string base = "--base base --seq-len 128 ", narrow = "--base base --seq-len 64 ";
  EXPECT_EQ(ratio(base, base), std::pair(1.0, 0.0));
  EXPECT_EQ(ratio(narrow, narrow), std::pair(1.0, 0.0));
  EXPECT_NE(ratio(narrow, base).first, 1);
  EXPECT_NE(ratio(base + "--draw-temperature 0.9", base).first, 1);
  const auto [stale, kl] = ratio(base, "--base later --seq-len 128");
  EXPECT_NE(stale, 1);
  EXPECT_GT(kl, 0);
}

// With a learning rate of 0 the same prompts come to the same weights again. Their answers differ.
TEST_F(Rl, NoStepRepeatsTheNoiseOfAnother) {
  save_base("--model tiny");
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "{\"prompt\": \"1+2\", \"answer\": \"3\"}\n";
  write("tasks.jsonl", lines);
  trace(k37,
        kModel + "--data tasks.jsonl --batch 9 --group 2 --max-tokens 8 --lr 0 --rollouts r.jsonl",
        {0, 2});
  std::map<int, std::vector<nlohmann::json>> drawn;
  for (const nlohmann::json& answer : json_lines("r.jsonl"))
    drawn[answer["rollout"]].push_back(answer["tokens"]);
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_NE(drawn[0][0], drawn[0][1]);
}

// Each step has the prompt of the step before: keys that had outlived the update would be found.
TEST_F(Rl, NoKeyOutlivesAnUpdate) {
  save_base("--model tiny");
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"prompt\": \"1+2\", \"answer\": \"7\"}\n";
  write("tasks.jsonl", lines);
  const Trace all = trained("--lr 3e-4 ");
  EXPECT_NE(all.steps[0].grad_norm, "0x0p+0");
  EXPECT_EQ(told("ratio_max"), std::vector<double>(kSteps, 1));
}

TEST_F(Rl, BytesAreAsPredicted) {
  save_base("--model tiny");
  for (const std::string& flags :
       {kGrpo, kGrpo + "--ranks 2 --micro-batch 1", kGrpo + "--kl 0.1 --precision bf16",
        kDpo + "--loss dpo", kGrpo + "--places 3 --recompute full"})
    EXPECT_TRUE(as_predicted(report(k37, flags + " --steps 1"))) << flags;
}

TEST_F(Rl, RefusesWhatDoesNotFit) {
  save_base("--model tiny");
  const auto refused = [&](const std::string& flags, const std::string& says) {
    expect_refused(k37, flags, says);
  };
  refused("--model tiny --data tasks.jsonl", "--base is missing");
  refused("--model tiny --base base --data text.txt", "legal are lines of JSON");
  refused(kModel + "--data tasks.jsonl --group 1", "--group must be from 2");
  refused(kGrpo + "--draw-temperature 0", "--draw-temperature must be from 0.001");
  refused(kGrpo + "--role train", "--role needs --rollouts");
  refused(kGrpo + "--rollouts tasks.jsonl", "would write in --data tasks.jsonl");
  refused(kGrpo + "--rollouts gone --role train", "gone");
  refused(kGrpo + "--loss dpo", "line 1 is not {\"prompt\": \"...\", \"chosen\"");
  refused(kDpo + "--loss dpo --updates 2", "legal are no --updates");
  refused(kModel + "--data tasks.jsonl --batch 64", "60 lines; legal are");
  write("r.jsonl", "{\"line\": 1}\n");
  refused(kGrpo + "--rollouts r.jsonl --role train", "--rollouts r.jsonl: line 1");
  const std::string good = "{\"prompt\": \"1\", \"answer\": \"1\"}\n";
  write("tasks.jsonl",
        good + "{\"prompt\": \"" + std::string(60, 'a') + "\", \"answer\": \"1\"}\n");
  refused(kGrpo, "line 2: 79 tokens; legal are 64, the window");
  write("tasks.jsonl", good + "{\"prompt\": \"a\xFF\", \"answer\": \"1\"}\n");
  refused(kGrpo, "tasks.jsonl: line 2");
}

}  // namespace
}  // namespace ladder::test
