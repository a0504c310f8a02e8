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

}  // namespace
}  // namespace ladder::test
