// 04_clipping: with everything off the same bits as 03, and any legal split into micro-batches
// the bits of any other.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class ClippingBits : public SameTraceExact {};
INSTANTIATE_TEST_SUITE_P(Clipping, ClippingBits, ::testing::ValuesIn(exact_tier()), exact_name);

TEST_P(ClippingBits, AllOffIsChapter03) {
  for (const std::string flags :
       {"", "--optimizer sgd --momentum 0.9", "--schedule cosine --warmup 2"})
    EXPECT_TRUE(same_trace(trace("03_schedules", flags), trace("04_clipping", flags))) << flags;
}

TEST_P(ClippingBits, AnyMicroBatchOf8) {
  const std::string flags = "--batch 8 --clip 1";
  const Trace whole = trace("04_clipping", flags);
  for (const std::string micro :
       {" --micro-batch 1", " --micro-batch 2", " --micro-batch 4", " --micro-batch 8"})
    EXPECT_TRUE(same_trace(whole, trace("04_clipping", flags + micro))) << micro;
}

TEST_P(ClippingBits, AnyMicroBatchOf12) {
  const std::string flags = "--batch 12 --clip 1";
  const Trace whole = trace("04_clipping", flags);
  for (const std::string micro : {" --micro-batch 4", " --micro-batch 12"})
    EXPECT_TRUE(same_trace(whole, trace("04_clipping", flags + micro))) << micro;
}

TEST_P(ClippingBits, AnyThreads) {
  const std::string flags = "--micro-batch 2 --clip 1";
  const Trace one = trace("04_clipping", flags);
  for (const std::string threads : {"2", "3", "4"})
    EXPECT_TRUE(same_trace(one, trace("04_clipping", flags + " --threads " + threads))) << threads;
}

TEST_P(ClippingBits, Resume) {
  const std::string flags = "--micro-batch 2 --clip 1";
  EXPECT_TRUE(same_trace(trace("04_clipping", flags), interrupted("04_clipping", flags)));
}

class ClippingMore : public SameTraceSmall {};

TEST_F(ClippingMore, MicroBatchesWithEverythingOn) {
  for (const std::string flags :
       {"--batch 12 --clip 0.5", "--batch 8 --optimizer adafactor --clip 1",
        "--batch 8 --optimizer adamw8bit"}) {
    const Trace whole = trace("04_clipping", flags);
    for (const std::string micro : {"1", "2", "4"})
      EXPECT_TRUE(same_trace(whole, trace("04_clipping", flags + " --micro-batch " + micro)))
          << flags << " in " << micro;
  }
}

TEST_F(ClippingMore, EveryCountOfMicroSteps) {
  for (const std::string batch : {"3", "5", "6", "7", "13"}) {
    const std::string flags = "--batch " + batch;
    EXPECT_TRUE(same_trace(trace("04_clipping", flags, {0, 2}),
                           trace("04_clipping", flags + " --micro-batch 1", {0, 2})))
        << batch;
  }
}

class ClippingControls : public SameTraceSmall {};

TEST_F(ClippingControls, OneRunningBufferDependsOnTheSplit) {
  for (const std::string flags : {"--batch 8", "--batch 8 --clip 1"}) {
    const Trace whole = trace("04_clipping", flags);
    for (const std::string micro : {" --micro-batch 1", " --micro-batch 2"})
      EXPECT_TRUE(
          different_trace(whole, trace("04_clipping", flags + micro + " --accumulate running")))
          << flags << micro;
    // Two halves are joined by one addition, in a tree as in a running sum.
    EXPECT_TRUE(
        same_trace(whole, trace("04_clipping", flags + " --micro-batch 4 --accumulate running")));
  }
}

TEST_F(ClippingControls, WhatIsOnChangesTheRun) {
  const Trace off = trace("04_clipping", "");
  EXPECT_TRUE(same_trace(off, trace("03_schedules", "")));
  for (const std::string on : {"--clip 1", "--seed 2"})
    EXPECT_TRUE(different_trace(off, trace("04_clipping", on))) << on;
}

TEST_F(ClippingControls, WhatIsOnAndNotReachedDoesNot) {
  const Trace off = trace("04_clipping", "");
  for (const std::string on : {"--clip 1e9", "--micro-batch 2"})
    EXPECT_TRUE(same_trace(off, trace("04_clipping", on))) << on;
}

}  // namespace
}  // namespace ladder::test
