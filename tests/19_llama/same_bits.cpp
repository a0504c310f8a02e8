// The parts of a block: what was true of GPT-2's bits is true with each of LLaMA's parts, and with
// all of them together it is the preset of LLaMA.
#include "tests/19_llama/changes.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::string k06 = "06_checkpointing", k19 = "19_llama";
const std::string kBatch = "--batch 8 --clip 1 ";

class LlamaBlock : public SameTraceSmall {};

TEST_F(LlamaBlock, WithoutAFlagItIsChapter06) {
  for (const std::string flags :
       {"", "--model llama-nano", "--model tiny --heads 8 --micro-batch 2 --tied-head",
        "--recompute selective --precision bf16", "--model llama-nano --precision fp16",
        "--backend ref", "--backend ref --model llama-nano"})
    EXPECT_TRUE(same_trace(trace(k06, kBatch + flags), trace(k19, kBatch + flags))) << flags;
}

TEST_F(LlamaBlock, WhatAPresetHasChangesNothing) {
  const std::string gpt2 = "--norm layer --mlp gelu --position learned --kv-heads 8 --hidden 512";
  const std::string llama =
      "--norm rms --mlp swiglu --position rope --kv-heads 4 --hidden 384 --rope-theta 10000 "
      "--no-bias --model llama-nano";
  EXPECT_TRUE(same_trace(trace(k06, kBatch), trace(k19, kBatch + gpt2)));
  EXPECT_TRUE(same_trace(trace(k06, kBatch + "--model llama-nano"), trace(k19, kBatch + llama)));
}

TEST_F(LlamaBlock, AllChangesTogetherAreThePreset) {
  const Trace preset = trace(k06, kBatch + "--model llama-nano");
  EXPECT_TRUE(same_trace(preset, trace(k19, kBatch + kChanges[4].flags)));
  // Each of them matters: without it the model is another.
  for (const std::string without :
       {"--norm layer", "--mlp gelu", "--position learned", "--kv-heads 8", "--kv-heads 2",
        "--hidden 256", "--rope-theta 500000"})
    EXPECT_TRUE(different_trace(preset, trace(k19, kBatch + "--model llama-nano " + without)))
        << without;
}

TEST_F(LlamaBlock, BiasesMatter) {
  const std::string all = "--norm rms --mlp swiglu --position rope --kv-heads 4";
  EXPECT_TRUE(different_trace(trace(k19, kBatch + all), trace(k19, kBatch + all + " --no-bias")));
}

class EachChange : public SameTraceSmall, public ::testing::WithParamInterface<Change> {
 protected:
  Trace ours(const std::string& flags, Range range = {0, kSteps}) const {
    return trace(k19, kBatch + GetParam().flags + flags, range);
  }
};
INSTANTIATE_TEST_SUITE_P(Of, EachChange, ::testing::ValuesIn(kChanges), change_name);

TEST_P(EachChange, IsTheSameHoweverItRuns) {
  const Trace one = ours("");
  for (const std::string flags :
       {"--micro-batch 4", "--micro-batch 1 --threads 3", "--recompute full",
        "--recompute selective", "--recompute selective:mlp --micro-batch 2",
        "--recompute selective:attention", "--eval-every 1 --sample 3"})
    EXPECT_TRUE(same_trace(one, ours(flags))) << flags;
}

TEST_P(EachChange, GoesOnAfterACheckpoint) {
  EXPECT_TRUE(same_trace(ours(""), interrupted(k19, kBatch + GetParam().flags)));
}

TEST_P(EachChange, IsAnotherModelThanGpt2) {
  EXPECT_TRUE(different_trace(trace(k06, kBatch), ours("")));
}

TEST_P(EachChange, IsTheSameInNarrowFormats) {
  for (const std::string precision : {"bf16", "fp16"}) {
    const std::string narrow = "--loss-scale 1024 --precision " + precision;
    EXPECT_TRUE(same_trace(ours(narrow), ours(narrow + " --micro-batch 2 --recompute selective")))
        << precision;
  }
}

// `ref` is the specification, not the fast one: a smaller model.
TEST_P(EachChange, IsTheSameHoweverRefRuns) {
  const std::string small = "--channels 32 --backend ref ";
  EXPECT_TRUE(same_trace(ours(small), ours(small + "--micro-batch 2 --recompute selective")));
}

}  // namespace
}  // namespace ladder::test
