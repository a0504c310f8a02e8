// 01_sgd: same bits for any number of threads and over a resume.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class SgdBits : public SameTraceExact {};
INSTANTIATE_TEST_SUITE_P(Sgd, SgdBits, ::testing::ValuesIn(exact_tier()), exact_name);

TEST_P(SgdBits, AnyThreads) {
  const Trace one = trace("01_sgd", "--momentum 0.9 --threads 1");
  for (const std::string threads : {"2", "3", "4"})
    EXPECT_TRUE(same_trace(one, trace("01_sgd", "--momentum 0.9 --threads " + threads))) << threads;
}

TEST_P(SgdBits, Resume) {
  for (const char* flags : {"", "--momentum 0.9 --nesterov"})
    EXPECT_TRUE(same_trace(trace("01_sgd", flags), interrupted("01_sgd", flags))) << flags;
}

class SgdControls : public SameTraceSmall {};

TEST_F(SgdControls, OtherRunsDiffer) {
  const Trace one = trace("01_sgd", "--momentum 0.9");
  EXPECT_TRUE(same_trace(one, trace("01_sgd", "--momentum 0.9")));
  for (const char* other :
       {"--momentum 0", "--momentum 0.9000001", "--momentum 0.9 --lr 0.0010000002",
        "--momentum 0.9 --nesterov", "--momentum 0.9 --seed 2", "--momentum 0.9 --batch 5",
        "--momentum 0.9 --heads 4", "--momentum 0.9 --seq-len 15"})
    EXPECT_TRUE(different_trace(one, trace("01_sgd", other))) << other;
}

TEST_F(SgdControls, ResumeNeedsTheVelocity) {
  const Trace whole = trace("01_sgd", "--momentum 0.9");
  const Trace first = trace("01_sgd", "--momentum 0.9 --save half", {0, kHalf});
  trace("01_sgd", "--momentum 0.9 --save other --seed 2", {0, kHalf});
  take_optimizer(path("half"), path("other"));
  const Trace then = trace("01_sgd", "--momentum 0.9 --load half", {kHalf, kSteps});
  EXPECT_TRUE(different_trace(whole, joined(first, then)));
}

TEST_F(SgdControls, ResumeNeedsTheStep) {
  const Trace whole = trace("01_sgd", "");
  trace("01_sgd", "--save half", {0, kHalf});
  set_state(path("half"), "step", kHalf - 1);  // a batch comes twice
  EXPECT_TRUE(different_trace(whole, trace("01_sgd", "--load half", {kHalf - 1, kSteps})));
}

}  // namespace
}  // namespace ladder::test
