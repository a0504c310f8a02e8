// What --command prints: Ladder's line starts a run of the same bytes, and the others' flags are
// those of docs/frameworks.md.
#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/input_file.h"
#include "kernels/arena.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class PlannedCommand : public Programs {
 protected:
  /// What follows "NAME: " in the answer.
  std::string command(const std::string& name, const std::string& flags) const {
    const Ended ended = run("23_planner", words(flags + " --command"));
    EXPECT_EQ(ended.status, 0) << flags << "\n" << ended.err;
    std::istringstream lines(ended.out);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(name + ": ")) return line.substr(name.size() + 2);
    return "";
  }
  /// Bytes of the rank that takes most, as a chapter predicts them.
  int64_t predicted(const std::string& chapter, const std::string& flags) const {
    int64_t most = 0;
    const auto of_chapter = plan(chapter, flags);
    for (const auto& rank : of_chapter["memory"]) {
      int64_t sum = 0;
      for (const std::string_view name : kMemNames)
        sum += rank[std::string(name)]["predicted"].get<int64_t>();
      most = std::max(most, sum);
    }
    return most;
  }
};

const std::string kNano = "--model nano --batch 8 --micro-batch 1 ";

TEST_F(PlannedCommand, OfLadderStartsTheSameRun) {
  for (const std::string& flags : std::vector<std::string>{
           kNano + "--recompute none --gpus 1 --precision bf16 --threads 2",
           kNano + "--gpus 1 --seq-len 32 --layers 3 --channels 48 --heads 3 --recompute full",
           kNano + "--recompute none --gpus 4 --tp 1 --pp 1 --cp 1 --zero 0",
           kNano + "--recompute none --gpus 4 --tp 1 --pp 1 --cp 1 --zero 1",
           kNano + "--recompute none --gpus 4 --tp 1 --pp 1 --cp 1 --zero 2",
           kNano + "--recompute none --gpus 4 --tp 1 --pp 1 --cp 1 --zero 3 --replicas 1",
           kNano + "--recompute none --gpus 8 --tp 1 --pp 1 --cp 1 --zero 3 --replicas 2",
           kNano + "--recompute none --gpus 2 --tp 1 --pp 1 --cp 1 --zero 0 --precision fp8",
           kNano + "--recompute none --gpus 2 --tp 2 --pp 1 --cp 1 --dp 1",
           kNano + "--recompute none --gpus 2 --tp 2 --pp 1 --cp 1 --dp 1 --no-sequence-parallel",
           kNano + "--recompute none --gpus 2 --tp 1 --pp 2 --cp 1 --dp 1 --schedule zb-h1",
           kNano + "--recompute none --gpus 8 --tp 2 --pp 2 --cp 1 --dp 2 --zero 1 --schedule 1f1b",
           kNano + "--recompute none --gpus 4 --tp 2 --pp 2 --cp 1 --dp 1 --schedule interleaved "
                   "--chunks 2",
           "--model llama-nano --seq-len 128 --batch 4 --micro-batch 1 --recompute none --gpus 4 "
           "--tp 1 --pp 1 --cp 2 --zero 2 --context ring",
           "--model llama-nano --seq-len 128 --batch 4 --micro-batch 1 --recompute none --gpus 16 "
           "--tp 2 --pp 2 --cp 2 --dp 2 --zero 1 --schedule 1f1b --context gather",
           "--model moe-nano --batch 8 --micro-batch 1 --recompute none --gpus 4 --tp 1 --pp 1 "
           "--cp 1 "
           "--zero 2 --ep 2"}) {
    const std::string line = command("Ladder", flags), program = "build/cpu/bin/ch";
    ASSERT_TRUE(line.starts_with(program)) << flags << "\n" << line;
    const size_t end = line.find(' ');
    run("23_planner", words(flags + " --report plan.json"));
    const auto ladder = nlohmann::json::parse(read("plan.json"))["memory"]["ladder"];
    int64_t bytes = 0;
    for (const auto& [category, n] : ladder["bytes"].items()) bytes += n.get<int64_t>();
    const std::string chapter = line.substr(program.size(), end - program.size());
    EXPECT_EQ(chapter, ladder["chapter"].get<std::string>()) << line;
    EXPECT_EQ(predicted(chapter, line.substr(end)), bytes) << line;
  }
}

TEST_F(PlannedCommand, WhatAProgramLacksIsADash) {
  const std::string layout = "--gpus 16 --batch 64 --model llama3-8b ";
  for (const auto& [name, flags, why] :
       {std::tuple{"Ladder", "--tp 2 --pp 1 --cp 2 --zero 1", "no chapter runs such a layout"},
        {"Megatron-LM", "--pp 2 --schedule zb-h1", "it has no schedule zb-h1"},
        {"torchtitan", "--zero 1 --cp 1", "it shards parameters, too"},
        {"torchtitan", "--zero 3 --recompute every:2", "its recomputation knows none, full"},
        {"torchtitan", "--zero 3 --layers 16", "its llama3-8b has other sizes"}})
    EXPECT_TRUE(command(name, layout + flags).starts_with("-: " + std::string(why)))
        << command(name, layout + flags);
}

TEST_F(PlannedCommand, FlagsOfOthersStandInTheTable) {
  const std::string page = read_small_file(LADDER_FRAMEWORKS, 1 << 20);
  const std::string job = "--gpus 64 --batch 128 --model llama3-70b --gradients 16-bit ";
  for (const auto& [name, first] :
       {std::pair{"Megatron-LM", "--micro-batch-size"}, {"torchtitan", "--training."}})
    for (const char* flags :
         {"--tp 4 --pp 4 --cp 2 --dp 2 --zero 1 --schedule interleaved --chunks 2 "
          "--recompute selective",
          "--tp 8 --pp 4 --cp 1 --dp 2 --zero 0 --schedule 1f1b --recompute full",
          "--tp 4 --pp 1 --cp 1 --zero 3 --replicas 2 --recompute full",
          "--tp 4 --pp 1 --cp 2 --zero 2 --recompute selective:attention"}) {
      const std::string line = command(name, job + flags);
      if (line.starts_with("-: ")) continue;
      const size_t layout = line.find(first);
      ASSERT_NE(layout, std::string::npos) << line;
      for (const std::string& word : words(line.substr(layout)))
        if (word.starts_with("--")) {
          const std::string flag = word.substr(name == std::string_view("torchtitan") ? 2 : 0);
          EXPECT_NE(page.find(flag), std::string::npos) << flag;
        }
    }
}

}  // namespace
}  // namespace ladder::test
