// 15_batch_size: with everything off the same bits as 07; and the bits of one rank on any layout,
// while batches grow.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class BatchSizeBits : public SameTraceExact {};
INSTANTIATE_TEST_SUITE_P(BatchSize, BatchSizeBits, ::testing::ValuesIn(exact_tier()), exact_name);

const std::string kRamp = "--clip 1 --batch-ramp 4:1,8:2 --batch 16 ";

TEST_P(BatchSizeBits, AllOffIsChapter07) {
  for (const std::string flags : {"--batch 8 --micro-batch 2 --clip 1", "--batch 8 --ranks 2"})
    EXPECT_TRUE(same_trace(trace("07_ddp", flags), trace("15_batch_size", flags))) << flags;
}

TEST_P(BatchSizeBits, BatchesThatGrow) {
  const Trace one = trace("15_batch_size", kRamp);
  for (const std::string flags :
       {"--micro-batch 1", "--ranks 2", "--ranks 2 --micro-batch 2", "--ranks 4 --micro-batch 1"})
    EXPECT_TRUE(same_trace(one, trace("15_batch_size", kRamp + flags))) << flags;
}

TEST_P(BatchSizeBits, Resume) {
  const std::string flags = kRamp + "--micro-batch 1 --noise-scale --warmup-tokens 300 ";
  EXPECT_TRUE(same_trace(trace("15_batch_size", flags), interrupted("15_batch_size", flags)));
}

class BatchSizeMore : public SameTraceSmall {};

TEST_F(BatchSizeMore, TheNoiseScaleChangesNothing) {
  const Trace off = trace("15_batch_size", "--batch 8 --clip 1");
  for (const std::string flags :
       {"--micro-batch 2", "--ranks 4", "--ranks 2 --micro-batch 1 --ddp bucketed"})
    EXPECT_TRUE(
        same_trace(off, trace("15_batch_size", "--batch 8 --clip 1 --noise-scale " + flags)))
        << flags;
}

TEST_F(BatchSizeMore, GoesOnFromACheckpointOfChapter07) {
  const std::string flags = "--batch 8 --clip 1 ";
  const Trace whole = trace("15_batch_size", flags);
  const Trace first = trace("07_ddp", flags + "--save half", {0, kHalf});
  const Trace rest = trace("15_batch_size", flags + "--load half", {kHalf, kSteps});
  EXPECT_TRUE(same_trace(whole, joined(first, rest)));
}

TEST_F(BatchSizeMore, NegativeControlAnotherRampDiffers) {
  const Trace whole = trace("15_batch_size", kRamp);
  for (const std::string other :
       {"--clip 1 --batch-ramp 4:2,8:3 --batch 16", "--clip 1 --batch 16"})
    EXPECT_TRUE(different_trace(whole, trace("15_batch_size", other))) << other;
  EXPECT_TRUE(different_trace(
      whole, trace("15_batch_size", kRamp + "--micro-batch 1 --accumulate running")));
}

}  // namespace
}  // namespace ladder::test
