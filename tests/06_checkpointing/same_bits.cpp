// 06_checkpointing: every policy has the bits of 05, which keeps everything. What a wrong
// recomputation does to the gradients: gradients.cpp.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

/// All policies of a model of L layers; every:K for the given K.
std::vector<std::string> policies(const std::vector<std::string>& every) {
  std::vector<std::string> all = {
      "none", "sqrt", "full", "selective", "selective:attention", "selective:mlp"};
  for (const std::string& k : every) all.push_back("every:" + k);
  return all;
}

class CheckpointBits : public SameTraceExact {};
INSTANTIATE_TEST_SUITE_P(Checkpointing, CheckpointBits, ::testing::ValuesIn(exact_tier()),
                         exact_name);

TEST_P(CheckpointBits, EveryPolicyIsChapter05) {
  const bool two_layers = GetParam().flags.find("--layers 2") != std::string::npos;
  const std::string flags = "--micro-batch 2 --clip 1";
  const Trace kept = trace("05_mixed_precision", flags, {0, 3});
  for (const std::string& policy :
       policies(two_layers ? std::vector<std::string>{"2"} : std::vector<std::string>{"2", "3"}))
    EXPECT_TRUE(
        same_trace(kept, trace("06_checkpointing", flags + " --recompute " + policy, {0, 3})))
        << policy;
}

/// Few layers, an odd number of them, in a precision.
class OddLayers : public SameTrace, public ::testing::WithParamInterface<std::string> {
 protected:
  void expect_same(const std::string& flags, const std::vector<std::string>& policies) const {
    const std::string all = "--loss-scale 1024 --precision " + GetParam() + " " + flags;
    const Trace kept = trace("05_mixed_precision", all, {0, 3});
    for (const std::string& policy : policies)
      EXPECT_TRUE(
          same_trace(kept, trace("06_checkpointing", all + " --recompute " + policy, {0, 3})))
          << flags << " " << policy;
  }
};
INSTANTIATE_TEST_SUITE_P(Precision, OddLayers, ::testing::Values("fp32", "bf16", "fp16"),
                         [](const auto& precision) { return precision.param; });

TEST_P(OddLayers, One) { expect_same("--layers 1", policies({"1"})); }
TEST_P(OddLayers, Three) {
  expect_same("--layers 3 --batch 8 --micro-batch 2 --threads 2", policies({"2", "3"}));
}
TEST_P(OddLayers, Five) { expect_same("--layers 5", policies({"2", "3", "4"})); }

class CheckpointMore : public SameTraceSmall {};

TEST_F(CheckpointMore, AnyMicroBatch) {
  for (const std::string policy : {"full", "selective"}) {
    const std::string flags = "--precision bf16 --batch 8 --recompute " + policy;
    const Trace whole = trace("06_checkpointing", flags);
    for (const std::string micro : {"1", "4"})
      EXPECT_TRUE(same_trace(whole, trace("06_checkpointing", flags + " --micro-batch " + micro)))
          << policy << " in " << micro;
  }
}

TEST_F(CheckpointMore, Resume) {
  for (const std::string flags : {"--recompute full --precision bf16", "--recompute selective"})
    EXPECT_TRUE(
        same_trace(trace("06_checkpointing", flags), interrupted("06_checkpointing", flags)))
        << flags;
}

TEST_F(CheckpointMore, AResumeMayChangeThePolicy) {
  const std::string flags = "--precision bf16 ";
  const Trace first = trace("06_checkpointing", flags + "--recompute sqrt --save half", {0, kHalf});
  for (const std::string policy : {"none", "full"})
    EXPECT_TRUE(same_trace(
        trace("05_mixed_precision", flags),
        joined(first, trace("06_checkpointing", flags + "--load half --recompute " + policy,
                            {kHalf, kSteps}))))
        << policy;
}

TEST_F(CheckpointMore, EvaluationsAndSamplesChangeNothing) {
  const Trace plain = trace("05_mixed_precision", "--precision bf16");
  for (const std::string policy : {"full", "selective"})
    EXPECT_TRUE(same_trace(
        plain, trace("06_checkpointing",
                     "--precision bf16 --eval-every 1 --sample 4 --recompute " + policy)))
        << policy;
}

TEST_F(CheckpointMore, SamplesTheSameText) {
  const auto text = [&](const std::string& policy) {
    const std::string out =
        train("06_checkpointing", "--sample 40 --layers 3 --recompute " + policy).out;
    const size_t begin = out.find("---- sample");
    EXPECT_NE(begin, std::string::npos) << out;
    return begin == std::string::npos ? policy : out.substr(begin);
  };
  const std::string kept = text("none");
  EXPECT_GT(kept.size(), 40U);
  for (const std::string policy : {"every:2", "full", "selective"})
    EXPECT_EQ(text(policy), kept) << policy;
}

TEST_F(CheckpointMore, NegativeControlAnotherSeedDiffers) {
  EXPECT_TRUE(different_trace(trace("06_checkpointing", "--recompute full"),
                              trace("06_checkpointing", "--recompute full --seed 2")));
}

}  // namespace
}  // namespace ladder::test
