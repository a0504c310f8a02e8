// 07 to 10, and 18: a checkpoint does not know how many ranks wrote it, nor of which chapter they
// were.
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

// Everything that a checkpoint can hold.
const std::string kFlags =
    "--batch 8 --clip 1 --optimizer adamw8bit --precision fp16 --loss-scale 1024 ";

class RanksCheckpoints : public SameTraceSmall, public ::testing::WithParamInterface<DataParallel> {
 protected:
  /// Weights and states of a checkpoint, as they lie in its files.
  std::string tensors(const std::string& dir) const {
    return read(dir + "/model.safetensors") + read(dir + "/current/optimizer.safetensors");
  }
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksCheckpoints, ::testing::ValuesIn(data_parallel()),
                         row_name);

TEST_P(RanksCheckpoints, OfFourRanksGoOnUnderEveryChapter) {
  const Trace whole = trace("06_checkpointing", kFlags);
  const Trace first = trace(GetParam().chapter, kFlags + "--ranks 4 --save half", {0, kHalf});
  const auto go_on = [&](const std::string& chapter, const std::string& ranks) {
    const Trace rest = trace(chapter, kFlags + "--load half " + ranks, {kHalf, kSteps});
    EXPECT_TRUE(same_trace(whole, joined(first, rest))) << chapter << " " << ranks;
  };
  go_on("06_checkpointing", "");
  for (const DataParallel& other : data_parallel()) {
    go_on(other.chapter, "--ranks 2");
    go_on(other.chapter, "--ranks 8");
  }
  go_on(GetParam().chapter, "--ranks 1");
}

TEST_P(RanksCheckpoints, Of06GoOnHere) {
  const Trace whole = trace("06_checkpointing", kFlags);
  const Trace first = trace("06_checkpointing", kFlags + "--save half", {0, kHalf});
  for (const std::string ranks : {"1", "2", "4"}) {
    const std::string flags = kFlags + "--load half --ranks " + ranks;
    EXPECT_TRUE(same_trace(whole, joined(first, trace(GetParam().chapter, flags, {kHalf, kSteps}))))
        << ranks;
  }
}

TEST_P(RanksCheckpoints, HaveTheSameBytesWhoeverWroteThem) {
  for (const std::string flags :
       {"--batch 8 --optimizer adamw8bit ", "--batch 8 --precision bf16 "}) {
    trace("06_checkpointing", flags + "--save one", {0, kHalf});
    for (const std::string ranks : {"2", "8"}) {
      trace(GetParam().chapter, flags + "--save many --ranks " + ranks, {0, kHalf});
      EXPECT_TRUE(tensors("many") == tensors("one")) << flags << ranks;
    }
  }
}

TEST_P(RanksCheckpoints, NegativeControlAnotherOptimizersStateDiffers) {
  const Trace whole = trace("06_checkpointing", kFlags);
  trace(GetParam().chapter, kFlags + "--ranks 2 --save half", {0, kHalf});
  trace(GetParam().chapter, kFlags + "--ranks 2 --save other --seed 2", {0, kHalf});
  take_optimizer(path("half"), path("other"));
  const Trace rest = trace(GetParam().chapter, kFlags + "--ranks 4 --load half", {kHalf, kSteps});
  EXPECT_TRUE(different_trace(whole, rest));
}

}  // namespace
}  // namespace ladder::test
