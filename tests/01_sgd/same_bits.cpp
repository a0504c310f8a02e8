// 01_sgd: what a resume needs. That it has the same bits: equal_runs.txt.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class SgdControls : public SameTraceSmall {};

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
