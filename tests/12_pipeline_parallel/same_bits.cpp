// 12_pipeline_parallel: stages that share the layers have the bits of 06 on one rank, whatever the
// schedule.
#include <fmt/format.h>

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

constexpr Range kShort = {0, 3};

std::vector<Exact> tables() {
  // `ref` is the specification, not the fast one: fewer layers and tokens.
  return {
      {.name = "cpu", .flags = "--backend cpu --model nano "},
      {.name = "ref", .flags = "--backend ref --layers 4 --channels 32 --heads 4 --seq-len 5 "}};
}

class PipelineBits : public SameTraceExact {};
INSTANTIATE_TEST_SUITE_P(Pipeline, PipelineBits, ::testing::ValuesIn(tables()), exact_name);

TEST_P(PipelineBits, EveryScheduleAndDegreeIsChapter06) {
  const std::string flags = "--batch 8 --clip 1";
  const Trace one = trace("06_checkpointing", flags, kShort);
  for (const char* schedule : kNames<PipelineKind>)
    for (const int pp : {1, 2, 4}) {
      // Of 4 layers, 4 stages have no two parts each.
      if (GetParam().name == "ref" && pp == 4 && schedule == std::string("interleaved")) continue;
      const std::string ours =
          fmt::format("{} --micro-batch 2 --pp {} --pipeline {}", flags, pp, schedule);
      EXPECT_TRUE(same_trace(one, trace("12_pipeline_parallel", ours, kShort))) << ours;
    }
}

// Each schedule with each policy, on 2 stages or on 4; each schedule on both.
TEST_P(PipelineBits, WhateverIsComputedAgain) {
  const std::string flags = "--batch 8 --micro-batch 2 ";
  const Trace one = trace("06_checkpointing", flags, kShort);
  int i = 0;
  for (const std::string policy : {"full", "selective", "every:1", "sqrt"})
    for (const char* schedule : kNames<PipelineKind>) {
      const bool four = ++i % 3 == 0 && GetParam().name == "cpu";
      const std::string ours = fmt::format("{} --recompute {} --pp {} --pipeline {}", flags, policy,
                                           four ? 4 : 2, schedule);
      EXPECT_TRUE(same_trace(one, trace("12_pipeline_parallel", ours, kShort))) << ours;
    }
}

/// Of four layers: two stages with two parts, and four.
class PipelineMore : public SameTrace {
 protected:
  Trace one(const std::string& flags, Range range = {0, kSteps}) const {
    return trace("06_checkpointing", "--layers 4 " + flags, range);
  }
  Trace stages(const std::string& flags, Range range = {0, kSteps}) const {
    return trace("12_pipeline_parallel", "--layers 4 " + flags, range);
  }
};

TEST_F(PipelineMore, CheckpointsGoFromPipelineToPipeline) {
  const std::string flags = "--clip 1 --batch 8 --micro-batch 2 ";
  const Trace whole = one(flags);
  const Trace first = stages(flags + "--pp 2 --pipeline interleaved --save two", {0, kHalf});
  EXPECT_TRUE(same_trace(first, one(flags + "--save one", {0, kHalf})));
  for (const std::string file : {"/model.safetensors", "/current/optimizer.safetensors"})
    EXPECT_EQ(read("two" + file), read("one" + file)) << file;
  const auto rest = [&](const std::string& ours) {
    return joined(first, stages(flags + "--load " + ours, {kHalf, kSteps}));
  };
  EXPECT_TRUE(same_trace(whole, joined(first, one(flags + "--load two", {kHalf, kSteps}))));
  for (const std::string ours : {"one --pp 4 --pipeline zb-h1", "two --pp 1", "two --pp 4"})
    EXPECT_TRUE(same_trace(whole, rest(ours))) << ours;
}

TEST_F(PipelineMore, SamplesTheSameText) {
  const auto text = [&](const std::string& chapter, const std::string& flags) {
    const std::string out = train(chapter, "--layers 4 --sample 40 " + flags).out;
    const size_t begin = out.find("---- sample");
    return begin == std::string::npos ? chapter : out.substr(begin);
  };
  const std::string alone = text("06_checkpointing", "");
  EXPECT_GT(alone.size(), 40U);
  EXPECT_EQ(text("12_pipeline_parallel", "--pp 4 --micro-batch 1"), alone);
  EXPECT_EQ(text("12_pipeline_parallel", "--pp 2 --micro-batch 1 --pipeline interleaved"), alone);
}

}  // namespace
}  // namespace ladder::test
