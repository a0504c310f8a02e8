// 14_stability: with everything off the same bits as 04; and any legal split into micro-batches and
// any number of threads the bits of any other.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class StabilityBits : public SameTraceExact {};
INSTANTIATE_TEST_SUITE_P(Stability, StabilityBits, ::testing::ValuesIn(exact_tier()), exact_name);

TEST_P(StabilityBits, AllOffIsChapter04) {
  for (const std::string flags : {"", "--micro-batch 2 --clip 1 --schedule cosine --warmup 2"})
    EXPECT_TRUE(same_trace(trace("04_clipping", flags), trace("14_stability", flags))) << flags;
}

TEST_P(StabilityBits, AnyThreads) {
  const std::string flags = "--micro-batch 2 --clip 1 --agc 0.02";
  const Trace one = trace("14_stability", flags);
  for (const std::string threads : {"2", "3", "4"})
    EXPECT_TRUE(same_trace(one, trace("14_stability", flags + " --threads " + threads))) << threads;
}

TEST_P(StabilityBits, Resume) {
  const std::string flags = "--micro-batch 2 --clip 1 --agc 0.02 --spike-guard 4";
  EXPECT_TRUE(same_trace(trace("14_stability", flags), interrupted("14_stability", flags)));
}

class StabilityMore : public SameTraceSmall {};

TEST_F(StabilityMore, MicroBatchesWithEverythingOn) {
  for (const std::string flags :
       {"--batch 8 --agc 0.02", "--batch 8 --clip 0.5 --agc 0.02 --spike-guard 3",
        "--batch 12 --clip 0.5 --agc 0.02", "--batch 8 --optimizer adamw8bit --agc 0.05"}) {
    const Trace whole = trace("14_stability", flags);
    for (const std::string micro : {"1", "2", "4"})
      EXPECT_TRUE(same_trace(whole, trace("14_stability", flags + " --micro-batch " + micro)))
          << flags << " in " << micro;
  }
}

TEST_F(StabilityMore, GoesOnFromACheckpointOfChapter04) {
  const Trace whole = trace("14_stability", "--clip 1");
  const Trace first = trace("04_clipping", "--clip 1 --save half", {0, kHalf});
  const Trace rest = trace("14_stability", "--clip 1 --load half", {kHalf, kSteps});
  EXPECT_TRUE(same_trace(whole, joined(first, rest)));
}

class StabilityControls : public SameTraceSmall {};

TEST_F(StabilityControls, OneRunningBufferDependsOnTheSplit) {
  const std::string flags = "--batch 8 --agc 0.02";
  const Trace whole = trace("14_stability", flags);
  for (const std::string micro : {" --micro-batch 1", " --micro-batch 2"})
    EXPECT_TRUE(
        different_trace(whole, trace("14_stability", flags + micro + " --accumulate running")))
        << micro;
}

TEST_F(StabilityControls, WhatIsOnChangesTheRun) {
  const Trace off = trace("14_stability", "");
  for (const std::string on : {"--agc 0.02", "--bad-batch 2"})
    EXPECT_TRUE(different_trace(off, trace("14_stability", on))) << on;
}

TEST_F(StabilityControls, WhatIsOnAndNotReachedDoesNot) {
  const Trace off = trace("14_stability", "");
  for (const std::string on : {"--agc 1e9", "--spike-guard 4", "--bad-batch 100"})
    EXPECT_TRUE(same_trace(off, trace("14_stability", on))) << on;
}

}  // namespace
}  // namespace ladder::test
