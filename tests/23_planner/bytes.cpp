// What the planner says of Ladder's own memory is what a run of that chapter counts, to the byte.
#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/arena.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class PlannedBytes : public Programs {
 protected:
  /// Of the planner's only layout, Ladder's column.
  nlohmann::json planned(const std::string& flags) const {
    const Ended ended = run("23_planner", words(flags + " --report plan.json"));
    EXPECT_EQ(ended.status, 0) << flags << "\n" << ended.err;
    return nlohmann::json::parse(read("plan.json"))["memory"]["ladder"];
  }
  static int64_t total(const nlohmann::json& bytes) {
    int64_t sum = 0;
    for (const auto& [category, n] : bytes.items()) sum += n.get<int64_t>();
    return sum;
  }
  /// Of the rank of a run that takes most, by category.
  nlohmann::json measured(const std::string& chapter, const std::string& flags) const {
    nlohmann::json most;
    const auto got = report(chapter, flags);
    for (const auto& rank : got["memory"]) {
      nlohmann::json bytes;
      for (const std::string_view name : kMemNames)
        bytes[std::string(name)] = rank[std::string(name)]["measured"];
      if (most.is_null() || total(bytes) > total(most)) most = bytes;
    }
    return most;
  }
  /// @param layout flags of the planner; @param flags the same of the chapter
  void expect_equal(const std::string& chapter, const std::string& both, const std::string& layout,
                    const std::string& flags) const {
    const auto plan = planned(both + " " + layout);
    ASSERT_TRUE(plan.is_object()) << chapter << " " << layout;
    EXPECT_EQ(plan["chapter"], chapter);
    EXPECT_EQ(plan["bytes"], measured(chapter, "--steps 1 --threads 1 " + both + " " + flags))
        << chapter << " " << layout;
  }
};

const std::string kNano = "--model nano --batch 8";

TEST_F(PlannedBytes, OfOneRank) {
  expect_equal("06_checkpointing",
               kNano + " --recompute selective --micro-batch 2 --precision bf16", "--gpus 1", "");
  expect_equal("06_checkpointing", "--model llama-nano --batch 4 --recompute full --micro-batch 4",
               "--gpus 1 --precision fp32", "");
}

TEST_F(PlannedBytes, OfEachStageOfZero) {
  for (const auto& [chapter, zero] :
       {std::pair{"07_ddp", 0}, {"08_zero1", 1}, {"09_zero2", 2}, {"10_zero3", 3}})
    expect_equal(chapter, kNano + " --precision bf16 --micro-batch 2 --recompute none",
                 fmt::format("--gpus 2 --tp 1 --pp 1 --cp 1 --zero {}", zero), "--ranks 2");
}

TEST_F(PlannedBytes, OfReplicas) {
  for (const int replicas : {2, 4})
    expect_equal("30_hsdp",
                 fmt::format("{} --precision bf16 --micro-batch 1 --recompute none --replicas {}",
                             kNano, replicas),
                 "--gpus 8 --tp 1 --pp 1 --cp 1 --zero 3", "--ranks 8");
}

TEST_F(PlannedBytes, OfFp8) {
  expect_equal("16_fp8", kNano + " --precision fp8 --micro-batch 4 --recompute none",
               "--gpus 2 --tp 1 --pp 1 --cp 1 --zero 0", "--ranks 2");
}

TEST_F(PlannedBytes, OfAMesh) {
  const std::string nano = kNano + " --precision bf16 --micro-batch 1 ";
  expect_equal("13_3d_parallel", nano + "--tp 2 --dp 2 --pp 2 --recompute selective",
               "--gpus 8 --cp 1 --zero 1 --schedule 1f1b", "--sequence-parallel");
  expect_equal("13_3d_parallel", nano + "--tp 2 --dp 1 --pp 2 --recompute none",
               "--gpus 4 --cp 1 --zero 0 --schedule interleaved --chunks 2 --no-sequence-parallel",
               "--pipeline interleaved");
  expect_equal("13_3d_parallel", nano + "--tp 1 --dp 2 --pp 4 --recompute full",
               "--gpus 8 --cp 1 --zero 1 --schedule zb-h1", "--pipeline zb-h1");
}

TEST_F(PlannedBytes, OfTensorRanksAndOfStagesAlone) {
  for (const std::string parallel : {"", "--sequence-parallel"})
    expect_equal("11_tensor_parallel",
                 kNano + " --tp 2 --micro-batch 2 --recompute selective --precision bf16",
                 "--gpus 2 --pp 1 --dp 1 --cp 1 --zero 0" +
                     std::string(parallel.empty() ? " --no-sequence-parallel" : ""),
                 parallel);
  expect_equal("12_pipeline_parallel", kNano + " --pp 2 --micro-batch 1 --recompute none",
               "--gpus 2 --tp 1 --dp 1 --cp 1 --zero 0 --schedule 1f1b --precision fp32", "");
}

TEST_F(PlannedBytes, OfThreads) {
  EXPECT_EQ(planned(kNano + " --gpus 1 --recompute none --micro-batch 8 --precision fp32 "
                            "--threads 2")["bytes"],
            measured("06_checkpointing", kNano + " --steps 1 --threads 2"));
}

TEST_F(PlannedBytes, OfExperts) {
  for (const std::string flags : {"--precision bf16 --recompute selective --micro-batch 2",
                                  "--precision fp32 --recompute full --micro-batch 1"})
    expect_equal("21_moe", "--model moe-nano --batch 4 " + flags, "--gpus 1", "");
}

TEST_F(PlannedBytes, OfExpertsOnSeveralRanks) {
  for (const auto& [ep, flags] :
       {std::pair{1, "--precision bf16 --recompute selective --micro-batch 2"},
        {2, "--precision fp32 --recompute full --micro-batch 1"},
        {4, "--precision bf16 --recompute none --micro-batch 1"}})
    expect_equal("22_expert_parallel",
                 fmt::format("--model moe-nano --batch 8 --ep {} {}", ep, flags),
                 "--gpus 4 --tp 1 --pp 1 --cp 1 --dp 4 --zero 2", "--ranks 4");
}

TEST_F(PlannedBytes, OfSharedSequences) {
  for (const std::string precision : {"fp32", "bf16"})
    for (const std::string way : {"gather", "ulysses", "ring"})
      expect_equal("20_context_parallel",
                   "--model llama-nano --seq-len 128 --batch 4 --micro-batch 1 --recompute "
                   "selective --cp 2 --precision " +
                       precision + " --context " + way,
                   "--gpus 4 --tp 1 --pp 1 --dp 2 --zero 2", "--ranks 4");
}

TEST_F(PlannedBytes, ADashWhereNoChapterRunsThat) {
  for (const std::string layout :
       {"--gpus 4 --tp 2 --dp 2 --pp 1 --cp 1 --zero 2", "--gpus 2 --tp 1 --dp 1 --pp 1 --cp 2",
        "--gpus 4 --tp 2 --dp 2 --pp 1 --cp 1 --zero 0"})
    EXPECT_TRUE(planned(kNano + " --micro-batch 1 --recompute none " + layout).is_null()) << layout;
}

}  // namespace
}  // namespace ladder::test
