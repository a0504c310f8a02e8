// 16_fp8: on any number of ranks the bits of one.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::string kFp8 = "--precision fp8 ";

class Fp8Ranks : public SameTraceSmall {};

TEST_F(Fp8Ranks, AreOne) {
  for (const std::string flags :
       {"--batch 16 --clip 1 ", "--batch 16 --master 16 ", "--batch 16 --recompute full "}) {
    const Trace one = trace("16_fp8", kFp8 + flags);
    for (const std::string cut : {"--ranks 1 --micro-batch 8", "--ranks 2", "--ranks 4",
                                  "--ranks 4 --micro-batch 1 --threads 2", "--ranks 8"})
      EXPECT_TRUE(same_trace(one, trace("16_fp8", kFp8 + flags + cut))) << flags << cut;
  }
}

// A maximum is the same in any order, so that only the gradients ask for a tree.
TEST_F(Fp8Ranks, InEveryWayOfASumThatIsATree) {
  const Trace one = trace("16_fp8", kFp8 + "--batch 8");
  for (const std::string way :
       {"--ddp naive", "--ddp bucketed", "--bucket-mb 0", "--reduction tree",
        "--reduction ring --ranks 2", "--reduction naive --ranks 2"}) {
    const std::string ranks = way.find("--ranks") == std::string::npos ? " --ranks 4" : "";
    EXPECT_TRUE(same_trace(one, trace("16_fp8", kFp8 + "--batch 8 " + way + ranks))) << way;
  }
}

TEST_F(Fp8Ranks, ACheckpointOfFourGoesOnOnAnyNumber) {
  const std::string flags = kFp8 + "--batch 8 --clip 1 ";
  const Trace whole = trace("16_fp8", flags);
  const Trace first = trace("16_fp8", flags + "--ranks 4 --save half", {0, kHalf});
  for (const std::string ranks : {"1", "2", "8"})
    EXPECT_TRUE(same_trace(
        whole,
        joined(first, trace("16_fp8", flags + "--load half --ranks " + ranks, {kHalf, kSteps}))))
        << ranks;
}

TEST_F(Fp8Ranks, EvaluationsAndSamplesChangeNothing) {
  EXPECT_TRUE(same_trace(trace("16_fp8", kFp8 + "--batch 8"),
                         trace("16_fp8", kFp8 + "--batch 8 --eval-every 1 --sample 4 --ranks 4")));
}

}  // namespace
}  // namespace ladder::test
