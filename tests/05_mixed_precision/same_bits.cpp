// 05_mixed_precision: in FP32 the same bits as 04; in BF16 and FP16 the same for any split into
// micro-batches, any threads and after a resume.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class PrecisionBits : public SameTraceExact {};
INSTANTIATE_TEST_SUITE_P(Precision, PrecisionBits, ::testing::ValuesIn(exact_tier()), exact_name);

TEST_P(PrecisionBits, Fp32IsChapter04) {
  for (const std::string flags : {"--batch 8 --micro-batch 2 --clip 1",
                                  "--clip 0.5 --optimizer adamw8bit --schedule cosine --warmup 2"})
    EXPECT_TRUE(same_trace(trace("04_clipping", flags),
                           trace("05_mixed_precision", flags + " --precision fp32")))
        << flags;
}

/// What a test is given: a precision, with a loss scale that fits this model.
class NarrowBits : public SameTraceSmall, public ::testing::WithParamInterface<std::string> {
 protected:
  Trace narrow(const std::string& flags, Range range = {0, kSteps}) const {
    return trace("05_mixed_precision", precision + flags, range);
  }

  const std::string precision = "--precision " + GetParam() + " --loss-scale 1024 ";
};
INSTANTIATE_TEST_SUITE_P(Precision, NarrowBits, ::testing::Values("bf16", "fp16"),
                         [](const auto& precision) { return precision.param; });

TEST_P(NarrowBits, AnyMicroBatchOf8) {
  const std::string flags = "--batch 8 --clip 1";
  const Trace whole = narrow(flags);
  for (const std::string micro : {"1", "2", "4", "8"})
    EXPECT_TRUE(same_trace(whole, narrow(flags + " --micro-batch " + micro))) << micro;
}

TEST_P(NarrowBits, AnyMicroBatchOf12) {
  const Trace whole = narrow("--batch 12");
  for (const std::string micro : {"1", "2", "4"})
    EXPECT_TRUE(same_trace(whole, narrow("--batch 12 --micro-batch " + micro))) << micro;
}

TEST_P(NarrowBits, AnyThreads) {
  const std::string flags = "--batch 4 --micro-batch 2 --clip 0.5";
  const Trace one = narrow(flags);
  for (const std::string threads : {"2", "3"})
    EXPECT_TRUE(same_trace(one, narrow(flags + " --threads " + threads))) << threads;
}

TEST_P(NarrowBits, OfRefToo) {
  const std::string flags = "--backend ref --seq-len 7 --batch 4";
  EXPECT_TRUE(
      same_trace(narrow(flags, {0, 3}), narrow(flags + " --micro-batch 1 --threads 2", {0, 3})));
}

TEST_P(NarrowBits, Resume) {
  for (const std::string flags : {"--micro-batch 2 --clip 1", "--optimizer adamw8bit --master 16"})
    EXPECT_TRUE(same_trace(narrow(flags), interrupted("05_mixed_precision", precision + flags)))
        << flags;
}

TEST_P(NarrowBits, EvaluationsChangeNothing) {
  EXPECT_TRUE(same_trace(narrow("--lr 0.1"), narrow("--lr 0.1 --eval-every 1")));
}

TEST_P(NarrowBits, NegativeControlOneRunningBufferDependsOnTheSplit) {
  EXPECT_TRUE(different_trace(narrow("--batch 8"),
                              narrow("--batch 8 --micro-batch 1 --accumulate running")));
}

class PrecisionControls : public SameTraceSmall {};

TEST_F(PrecisionControls, EveryPrecisionIsARunOfItsOwn) {
  std::vector<Trace> traces;
  for (const std::string flags : {"fp32", "bf16", "fp16", "bf16 --master 16", "fp16 --master 16"}) {
    traces.push_back(trace("05_mixed_precision", "--loss-scale 1024 --precision " + flags));
    for (size_t i = 0; i + 1 < traces.size(); ++i)
      EXPECT_TRUE(different_trace(traces[i], traces.back())) << flags << " and number " << i;
  }
}

TEST_F(PrecisionControls, OnlyFp16IsScaled) {
  const std::string bf16 = "--precision bf16 --loss-scale ";
  EXPECT_TRUE(same_trace(trace("05_mixed_precision", bf16 + "1"),
                         trace("05_mixed_precision", bf16 + "65536")));
  const std::string fp16 = "--precision fp16 --loss-scale ";
  EXPECT_TRUE(different_trace(trace("05_mixed_precision", fp16 + "1"),
                              trace("05_mixed_precision", fp16 + "1024")));
}

}  // namespace
}  // namespace ladder::test
