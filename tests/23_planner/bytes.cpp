// What the planner says of Ladder's own memory is what --plan-only of that chapter says, to the
// byte.
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
  /// Of the chapter's rank that takes most, by category.
  nlohmann::json predicted(const std::string& chapter, const std::string& flags) const {
    nlohmann::json most;
    const auto of_chapter = plan(chapter, flags);
    for (const auto& rank : of_chapter["memory"]) {
      nlohmann::json bytes;
      for (const std::string_view name : kMemNames)
        bytes[std::string(name)] = rank[std::string(name)]["predicted"];
      if (most.is_null() || total(bytes) > total(most)) most = bytes;
    }
    return most;
  }
  /// @param layout flags of the planner; @param flags the same of the chapter
  void expect_equal(const std::string& chapter, const std::string& both, const std::string& layout,
                    const std::string& flags) const {
    const auto plan = planned(both + " " + layout);
    ASSERT_TRUE(plan.is_object()) << chapter << " " << both << " " << layout;
    EXPECT_EQ(plan["chapter"], chapter);
    EXPECT_EQ(plan["bytes"], predicted(chapter, both + " " + flags))
        << chapter << " " << both << " " << layout;
  }
  /// The same for several precisions, policies and micro-batches of at most `micro` sequences.
  void expect_all(const std::string& chapter, const std::string& both, const std::string& layout,
                  const std::string& flags, int micro = 2) const {
    for (const auto& [numbers, size] : {std::pair{"--precision fp32 --recompute none", 1},
                                        {"--precision bf16 --recompute selective", 2},
                                        {"--precision bf16 --recompute full", 1}})
      expect_equal(chapter,
                   fmt::format("{} {} --micro-batch {}", both, numbers, std::min(size, micro)),
                   layout, flags);
  }
};

const std::string kNano = "--model nano --batch 8";

TEST_F(PlannedBytes, OfOneRank) {
  expect_all("06_checkpointing", kNano, "--gpus 1", "");
  expect_all("06_checkpointing", "--model llama-nano --batch 4", "--gpus 1", "");
  expect_all("06_checkpointing", kNano + " --threads 2", "--gpus 1", "");
}

TEST_F(PlannedBytes, OfEachStageOfZero) {
  for (const auto& [chapter, zero] :
       {std::pair{"07_ddp", 0}, {"08_zero1", 1}, {"09_zero2", 2}, {"10_zero3", 3}})
    for (const int ranks : {2, 4})
      expect_all(chapter, kNano,
                 fmt::format("--gpus {} --tp 1 --pp 1 --cp 1 --zero {} --replicas 1", ranks, zero),
                 fmt::format("--ranks {}", ranks));
}

TEST_F(PlannedBytes, OfReplicas) {
  for (const int replicas : {2, 4})
    expect_equal("30_hsdp",
                 fmt::format("{} --precision bf16 --micro-batch 1 --recompute none --replicas {}",
                             kNano, replicas),
                 "--gpus 8 --tp 1 --pp 1 --cp 1 --zero 3", "--ranks 8");
}

TEST_F(PlannedBytes, OfFp8) {
  for (const char* recompute : {"none", "full"})
    expect_equal("16_fp8",
                 fmt::format("{} --precision fp8 --micro-batch 4 --recompute {}", kNano, recompute),
                 "--gpus 2 --tp 1 --pp 1 --cp 1 --zero 0", "--ranks 2");
}

TEST_F(PlannedBytes, OfTensorRanks) {
  for (const int tp : {2, 4})
    for (const auto& [layout, flags] :
         {std::pair{" --no-sequence-parallel", ""}, {"", "--sequence-parallel"}})
      expect_all("11_tensor_parallel", fmt::format("{} --tp {}", kNano, tp),
                 fmt::format("--gpus {} --pp 1 --dp 1 --cp 1 --zero 0{}", tp, layout), flags);
}

TEST_F(PlannedBytes, OfStages) {
  for (const auto& [schedule, chunks] :
       {std::pair{"gpipe", ""}, {"1f1b", ""}, {"zb-h1", ""}, {"interleaved", " --chunks 2"}})
    expect_all(
        "12_pipeline_parallel", kNano + " --pp 2",
        fmt::format("--gpus 2 --tp 1 --dp 1 --cp 1 --zero 0 --schedule {}{}", schedule, chunks),
        fmt::format("--pipeline {}", schedule));
}

TEST_F(PlannedBytes, OfAMesh) {
  expect_all("13_3d_parallel", kNano + " --tp 2 --dp 2 --pp 2",
             "--gpus 8 --cp 1 --zero 1 --schedule 1f1b", "--sequence-parallel");
  expect_all("13_3d_parallel", kNano + " --tp 2 --dp 1 --pp 2",
             "--gpus 4 --cp 1 --zero 0 --schedule interleaved --chunks 2 --no-sequence-parallel",
             "--pipeline interleaved");
  expect_all("13_3d_parallel", kNano + " --tp 1 --dp 2 --pp 4",
             "--gpus 8 --cp 1 --zero 1 --schedule zb-h1", "--pipeline zb-h1");
}

TEST_F(PlannedBytes, OfExperts) {
  expect_all("21_moe", "--model moe-nano --batch 4", "--gpus 1", "");
  for (const int ep : {1, 2, 4})
    expect_all("22_expert_parallel", fmt::format("--model moe-nano --batch 8 --ep {}", ep),
               "--gpus 4 --tp 1 --pp 1 --cp 1 --dp 4 --zero 2", "--ranks 4");
}

TEST_F(PlannedBytes, OfSharedSequences) {
  for (const std::string way : {"gather", "ulysses", "ring"})
    expect_all("20_context_parallel",
               "--model llama-nano --seq-len 128 --batch 4 --cp 2 --context " + way,
               "--gpus 4 --tp 1 --pp 1 --dp 2 --zero 2", "--ranks 4", /*micro=*/1);
}

TEST_F(PlannedBytes, OfAllAxes) {
  const std::string both = "--model llama-nano --seq-len 128 --layers 4 --batch 4 --cp 2 ";
  for (const std::string way : {"gather", "ring"})
    expect_all("33_mesh", both + "--tp 2 --context " + way,
               "--gpus 8 --dp 2 --pp 1 --zero 2 --no-sequence-parallel", "--ranks 8", /*micro=*/1);
  expect_all("33_mesh", both + "--tp 2 --pp 2", "--gpus 16 --dp 2 --zero 1 --schedule 1f1b",
             "--ranks 16 --sequence-parallel", /*micro=*/1);
  expect_all("33_mesh", both + "--tp 1 --pp 2", "--gpus 4 --dp 1 --zero 1 --schedule zb-h1",
             "--ranks 4 --pipeline zb-h1", /*micro=*/1);
}

TEST_F(PlannedBytes, ADashWhereNoChapterRunsThat) {
  for (const std::string layout : {"--gpus 4 --tp 2 --dp 2 --pp 1 --cp 1 --zero 2",
                                   "--gpus 4 --tp 2 --dp 1 --pp 1 --cp 2 --zero 0",
                                   "--gpus 4 --tp 2 --dp 2 --pp 1 --cp 1 --zero 0"})
    EXPECT_TRUE(planned(kNano + " --micro-batch 1 --recompute none " + layout).is_null()) << layout;
}

}  // namespace
}  // namespace ladder::test
