// 16_fp8: without FP8 the bits of 07; in FP8 the same for any split into micro-batches, any
// threads, any recomputation and after a resume. On ranks: ranks.cpp.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class Fp8Bits : public SameTraceSmall {
 protected:
  Trace fp8(const std::string& flags, Range range = {0, kSteps}) const {
    return trace("16_fp8", "--precision fp8 " + flags, range);
  }
};

TEST_F(Fp8Bits, OtherPrecisionsAreChapter07) {
  for (const std::string flags :
       {"--precision fp32 --clip 1 --micro-batch 2", "--precision bf16 --ranks 2 --recompute full",
        "--precision fp16 --loss-scale 1024 --ranks 4"})
    EXPECT_TRUE(same_trace(trace("07_ddp", flags), trace("16_fp8", flags))) << flags;
}

TEST_F(Fp8Bits, AnyMicroBatch) {
  for (const std::string flags : {"--batch 8 --clip 1", "--batch 12"}) {
    const Trace whole = fp8(flags);
    for (const std::string micro : {"1", "2", "4"})
      EXPECT_TRUE(same_trace(whole, fp8(flags + " --micro-batch " + micro))) << flags << micro;
  }
}

TEST_F(Fp8Bits, AnyThreads) {
  const std::string flags = "--batch 4 --micro-batch 2";
  const Trace one = fp8(flags);
  for (const std::string threads : {"2", "3"})
    EXPECT_TRUE(same_trace(one, fp8(flags + " --threads " + threads))) << threads;
}

TEST_F(Fp8Bits, OfRefToo) {
  const std::string flags = "--backend ref --seq-len 7 --batch 4";
  EXPECT_TRUE(same_trace(fp8(flags, {0, 3}), fp8(flags + " --micro-batch 1 --threads 2", {0, 3})));
}

// An evaluation goes through the same forward, whose casts look for the largest magnitude.
TEST_F(Fp8Bits, EvaluationsAndSamplesChangeNothing) {
  EXPECT_TRUE(same_trace(fp8("--lr 0.1"), fp8("--lr 0.1 --eval-every 1 --sample 4")));
}

/// Few layers, an odd number of them: what is recomputed finds the codes and scales of forward.
class Fp8Recompute : public SameTrace, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Layers, Fp8Recompute, ::testing::Values(1, 3, 5),
                         [](const auto& i) { return fmt::format("layers{}", i.param); });

TEST_P(Fp8Recompute, EveryPolicyIsNone) {
  const std::string flags =
      fmt::format("--precision fp8 --layers {} --batch 8 --micro-batch 2 --threads 2 ", GetParam());
  const Trace kept = trace("16_fp8", flags, {0, 3});
  std::vector<std::string> policies{"sqrt",          "full",   "selective", "selective:attention",
                                    "selective:mlp", "every:1"};
  if (GetParam() > 2) policies.insert(policies.end(), {"every:2", "every:3"});
  for (const std::string& policy : policies)
    EXPECT_TRUE(same_trace(kept, trace("16_fp8", flags + "--recompute " + policy, {0, 3})))
        << policy;
}

TEST_F(Fp8Bits, Resume) {
  for (const std::string flags :
       {"--micro-batch 2 --clip 1", "--optimizer adamw8bit --master 16", "--recompute full"})
    EXPECT_TRUE(same_trace(fp8(flags), interrupted("16_fp8", "--precision fp8 " + flags))) << flags;
}

TEST_F(Fp8Bits, AResumeMayChangeThePolicy) {
  const Trace whole = fp8(""), first = fp8("--recompute sqrt --save half", {0, kHalf});
  for (const std::string policy : {"none", "full", "selective"})
    EXPECT_TRUE(
        same_trace(whole, joined(first, fp8("--load half --recompute " + policy, {kHalf, kSteps}))))
        << policy;
}

}  // namespace
}  // namespace ladder::test
