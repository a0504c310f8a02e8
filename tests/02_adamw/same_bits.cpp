// 02_adamw: what a resume of every optimizer needs. That it has the same bits: equal_runs.txt.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::vector<std::string> kOptimizers = {"sgd --momentum 0.9", "adam",     "adamw", "lion",
                                              "adafactor",          "adamw8bit"};

class AdamWControls : public SameTraceSmall {};

TEST_F(AdamWControls, ResumeNeedsTheOptimizersState) {
  for (const std::string& name : kOptimizers) {
    const std::string flags = "--optimizer " + name;
    const Trace whole = trace("02_adamw", flags);
    trace("02_adamw", flags + " --save half", {0, kHalf});
    trace("02_adamw", flags + " --save other --seed 2", {0, kHalf});
    take_optimizer(path("half"), path("other"));
    const Trace then = trace("02_adamw", flags + " --load half", {kHalf, kSteps});
    EXPECT_TRUE(different_trace(whole, then)) << name;
  }
}

TEST_F(AdamWControls, ResumeNeedsTheCountOfUpdates) {
  for (const std::string name : {"adam", "adamw", "adafactor", "adamw8bit"}) {
    const std::string flags = "--optimizer " + name;
    const Trace whole = trace("02_adamw", flags);
    trace("02_adamw", flags + " --save half", {0, kHalf});
    set_state(path("half"), "optimizer", {{"name", name}, {"updates", kHalf + 1}});
    const Trace then = trace("02_adamw", flags + " --load half", {kHalf, kSteps});
    EXPECT_TRUE(different_trace(whole, then)) << name;
  }
}

}  // namespace
}  // namespace ladder::test
