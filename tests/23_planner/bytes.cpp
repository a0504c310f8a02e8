// What the planner says of Ladder's own memory is what --plan-only of that chapter says, to the
// byte. The chapter is started as the planner says.
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/arena.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class PlannedBytes : public Programs {
 protected:
  /// Of the chapter's rank that takes most, by category.
  nlohmann::json predicted(const std::string& chapter, const std::string& flags) const {
    nlohmann::json most;
    int64_t most_bytes = 0;
    const auto of_chapter = plan(chapter, flags);
    for (const auto& rank : of_chapter["memory"]) {
      nlohmann::json bytes;
      int64_t sum = 0;
      for (const std::string_view name : kMemNames) {
        bytes[std::string(name)] = rank[std::string(name)]["predicted"];
        sum += bytes[std::string(name)].get<int64_t>();
      }
      if (sum > most_bytes) most = bytes;
      most_bytes = std::max(most_bytes, sum);
    }
    return most;
  }
  /// @param flags that leave one layout
  void expect_equal(const std::string& chapter, const std::string& flags) const {
    const Ended ended = run("23_planner", words(flags + " --report plan.json"));
    ASSERT_EQ(ended.status, 0) << flags << "\n" << ended.err;
    const auto ladder = nlohmann::json::parse(read("plan.json"))["memory"]["ladder"];
    ASSERT_TRUE(ladder.is_object()) << flags;
    EXPECT_EQ(ladder["chapter"], chapter);
    const std::string program = "build/cpu/bin/ch" + chapter + " ";
    const size_t at = ended.out.find(program);
    ASSERT_NE(at, std::string::npos) << ended.out;
    const size_t begin = at + program.size();
    const std::string own = ended.out.substr(begin, ended.out.find('\n', at) - begin);
    EXPECT_EQ(ladder["bytes"], predicted(chapter, own)) << flags << "\n" << own;
  }
  /// The same for several precisions, policies and micro-batches of at most `micro` sequences.
  void expect_all(const std::string& chapter, const std::string& flags, int micro = 2) const {
    for (const auto& [numbers, size] : {std::pair{"--precision fp32 --recompute none", 1},
                                        {"--precision bf16 --recompute selective", 2},
                                        {"--precision bf16 --recompute full", 1}})
      expect_equal(chapter,
                   fmt::format("{} {} --micro-batch {}", flags, numbers, std::min(size, micro)));
  }
};

const std::string kNano = "--model nano --batch 8";

TEST_F(PlannedBytes, OfOneRank) {
  expect_all("06_checkpointing", kNano + " --gpus 1");
  expect_all("06_checkpointing", "--model llama-nano --batch 4 --gpus 1");
  expect_all("06_checkpointing", kNano + " --gpus 1 --threads 2");
  expect_all("06_checkpointing",
             kNano + " --gpus 1 --seq-len 32 --layers 3 --channels 48 --heads 3");
}

TEST_F(PlannedBytes, OfEachStageOfZero) {
  for (const auto& [chapter, zero] :
       {std::pair{"07_ddp", 0}, {"08_zero1", 1}, {"09_zero2", 2}, {"10_zero3", 3}})
    for (const int ranks : {2, 4})
      expect_all(chapter, fmt::format("{} --gpus {} --tp 1 --pp 1 --cp 1 --zero {} --replicas 1",
                                      kNano, ranks, zero));
}

TEST_F(PlannedBytes, OfReplicas) {
  for (const int replicas : {2, 4})
    expect_equal("30_hsdp",
                 fmt::format("{} --precision bf16 --micro-batch 1 --recompute none --replicas {} "
                             "--gpus 8 --tp 1 --pp 1 --cp 1 --zero 3",
                             kNano, replicas));
}

TEST_F(PlannedBytes, OfFp8) {
  for (const char* recompute : {"none", "full"})
    expect_equal("16_fp8", fmt::format("{} --precision fp8 --micro-batch 4 --recompute {} "
                                       "--gpus 2 --tp 1 --pp 1 --cp 1 --zero 0",
                                       kNano, recompute));
}

TEST_F(PlannedBytes, OfTensorRanks) {
  for (const int tp : {2, 4})
    for (const char* more : {"", " --no-sequence-parallel"})
      expect_all(
          "11_tensor_parallel",
          fmt::format("{} --tp {} --gpus {} --pp 1 --dp 1 --cp 1 --zero 0{}", kNano, tp, tp, more));
}

TEST_F(PlannedBytes, OfStages) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "interleaved --chunks 2"})
    expect_all("12_pipeline_parallel",
               fmt::format("{} --pp 2 --gpus 2 --tp 1 --dp 1 --cp 1 --zero 0 --schedule {}", kNano,
                           schedule));
}

TEST_F(PlannedBytes, OfAMesh) {
  for (const char* layout :
       {"--tp 2 --dp 2 --pp 2 --gpus 8 --zero 1 --schedule 1f1b",
        "--tp 2 --dp 1 --pp 2 --gpus 4 --zero 0 --schedule interleaved --chunks 2 "
        "--no-sequence-parallel",
        "--tp 1 --dp 2 --pp 4 --gpus 8 --zero 1 --schedule zb-h1"})
    expect_all("13_3d_parallel", fmt::format("{} --cp 1 {}", kNano, layout));
}

TEST_F(PlannedBytes, OfExperts) {
  expect_all("21_moe", "--model moe-nano --batch 4 --gpus 1");
  for (const int ep : {1, 2, 4})
    expect_all("22_expert_parallel", fmt::format("--model moe-nano --batch 8 --ep {} --gpus 4 "
                                                 "--tp 1 --pp 1 --cp 1 --dp 4 --zero 2",
                                                 ep));
}

const std::string kShared = "--model llama-nano --seq-len 128 --batch 4 --cp 2 ";

TEST_F(PlannedBytes, OfSharedSequences) {
  for (const std::string way : {"gather", "ulysses", "ring"})
    expect_all("20_context_parallel",
               kShared + "--gpus 4 --tp 1 --pp 1 --dp 2 --zero 2 --context " + way, /*micro=*/1);
}

TEST_F(PlannedBytes, OfAllAxes) {
  for (const char* layout :
       {"--tp 2 --gpus 8 --dp 2 --pp 1 --zero 2 --no-sequence-parallel",
        "--tp 2 --gpus 8 --dp 2 --pp 1 --zero 2 --no-sequence-parallel --context ring",
        "--tp 2 --pp 2 --gpus 16 --dp 2 --zero 1 --schedule 1f1b",
        "--tp 1 --pp 2 --gpus 4 --dp 1 --zero 1 --schedule zb-h1"})
    expect_all("33_mesh", kShared + "--layers 4 " + layout, /*micro=*/1);
}

TEST_F(PlannedBytes, ADashWhereNoChapterRunsThat) {
  for (const std::string layout : {"--gpus 4 --tp 2 --dp 2 --pp 1 --cp 1 --zero 2",
                                   "--gpus 4 --tp 2 --dp 1 --pp 1 --cp 2 --zero 0",
                                   "--gpus 4 --tp 2 --dp 2 --pp 1 --cp 1 --zero 0"}) {
    const Ended ended =
        run("23_planner", words(kNano + " --micro-batch 1 --recompute none " + layout));
    EXPECT_NE(ended.out.find("Ladder: -, as no chapter runs such a layout"), std::string::npos)
        << layout << "\n"
        << ended.out << ended.err;
  }
}

}  // namespace
}  // namespace ladder::test
