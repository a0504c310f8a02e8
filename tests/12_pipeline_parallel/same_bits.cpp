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

// Negative controls: a message that is lost, spoilt or mixed up on its way from stage to stage must
// be seen, and so must a weight gradient that a stage leaves out.

class PipelineControls : public SameTrace {
 protected:
  Trace one() const { return trace("06_checkpointing", common); }
  Trace stages(const std::string& flags) const {
    return trace("12_pipeline_parallel", common + "--micro-batch 2 " + flags);
  }
  const std::string common = "--layers 4 --batch 8 ";
};

// On two stages a step has 4 activations, which stage 1 receives, and 4 gradients, which stage 0
// does. The loss of step 0 knows activations alone.
TEST_F(PipelineControls, ALostActivationIsSeen) {
  const Trace alone = one();
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const Trace lost = stages("--pp 2 --fault skip:recv:3 --pipeline " + schedule);
    EXPECT_NE(lost.steps.at(0).loss, alone.steps.at(0).loss) << schedule;
    EXPECT_NE(lost.steps.back().param_hash, alone.steps.back().param_hash) << schedule;
  }
  const Trace lost = stages("--pp 2 --fault skip:recv:9 --pipeline interleaved");
  EXPECT_NE(lost.steps.back().param_hash, alone.steps.back().param_hash);
}

// The two sequences of a micro-batch change places: the same numbers in the wrong order.
TEST_F(PipelineControls, MixedUpActivationsAreSeen) {
  const Trace alone = one();
  for (const char* schedule : kNames<PipelineKind>) {
    const Trace mixed = stages(std::string("--pp 2 --fault swap:recv:1 --pipeline ") + schedule);
    EXPECT_TRUE(different_trace(alone, mixed)) << schedule;
    // Interleaved, they come by again on stage 0 and change back: only gradients do not fit.
    const bool twice = schedule == std::string("interleaved");
    EXPECT_EQ(mixed.steps.at(0).loss == alone.steps.at(0).loss, twice) << schedule;
  }
}

// The last bit of one number, on stage 0: a gradient.
TEST_F(PipelineControls, OneBitOfAGradientIsSeen) {
  const Trace alone = one();
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const Trace spoilt = stages("--pp 4 --fault corrupt:recv:2 --pipeline " + schedule);
    EXPECT_EQ(spoilt.steps.at(0).loss, alone.steps.at(0).loss) << schedule;
    EXPECT_NE(spoilt.steps.at(0).grad_norm, alone.steps.at(0).grad_norm) << schedule;
  }
}

// No message is lost here, and no activation: the gradient of a stage lacks its last micro-batch,
// and what waited to be joined with it. CMakeLists.txt makes the mutant.
TEST_F(PipelineControls, ASkippedWeightGradientIsSeen) {
  const Trace alone = one();
  for (const char* schedule : kNames<PipelineKind>) {
    const Trace without =
        trace("12_mutant", common + "--micro-batch 2 --pp 2 --pipeline " + schedule);
    EXPECT_EQ(without.steps.at(0).loss, alone.steps.at(0).loss) << schedule;
    EXPECT_NE(without.steps.at(0).grad_norm, alone.steps.at(0).grad_norm) << schedule;
    EXPECT_NE(without.steps.back().param_hash, alone.steps.back().param_hash) << schedule;
  }
}

// Beside messages: the losses, which the last stage has, and the norm, of which each has a part.
TEST_F(PipelineControls, WhatAllStagesShareIsNeeded) {
  const Trace alone = one();
  const Trace losses = stages("--pp 2 --fault skip:broadcast:0");
  EXPECT_NE(losses.steps.at(0).loss, alone.steps.at(0).loss);
  EXPECT_EQ(losses.steps.at(0).grad_norm, alone.steps.at(0).grad_norm);
  const Trace norm = stages("--pp 2 --fault skip:all_reduce:0");
  EXPECT_EQ(norm.steps.at(0).loss, alone.steps.at(0).loss);
  EXPECT_NE(norm.steps.at(0).grad_norm, alone.steps.at(0).grad_norm);
}

// A fault that does not happen changes nothing: what is seen above is the fault.
TEST_F(PipelineControls, AFaultThatNeverComesIsNotSeen) {
  const Trace alone = one();
  EXPECT_TRUE(same_trace(alone, stages("--pp 2 --fault skip:recv:100000")));
  EXPECT_TRUE(same_trace(alone, stages("--pp 1 --fault swap:recv:0")));
}

}  // namespace
}  // namespace ladder::test
