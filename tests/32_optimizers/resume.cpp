// What a resume needs of the optimizers of this chapter: without it a run goes on as another.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class OptimizersControls : public SameTraceSmall {};

TEST_F(OptimizersControls, ResumeNeedsStatesAndTheCountOfUpdates) {
  for (const std::string name : {"lion", "adafactor", "adamw8bit", "muon"}) {
    const std::string flags = "--optimizer " + name;
    const Trace whole = trace("32_optimizers", flags);
    const auto goes_on_as_another = [&] {
      return different_trace(whole,
                             trace("32_optimizers", flags + " --load half", {kHalf, kSteps}));
    };
    trace("32_optimizers", flags + " --save other --seed 2", {0, kHalf});
    trace("32_optimizers", flags + " --save half", {0, kHalf});
    take_optimizer(path("half"), path("other"));
    EXPECT_TRUE(goes_on_as_another()) << name;
    if (name == "lion") continue;  // its steps do not count
    trace("32_optimizers", flags + " --save half", {0, kHalf});
    set_state(path("half"), "optimizer",
              {{"name", name}, {"updates", kHalf + 1}, {"momentum", "lerp"}});
    EXPECT_TRUE(goes_on_as_another()) << name;
  }
}

// Moonlight's momentum, m = beta m + g, is 20 times as long, and its next steps are others.
TEST_F(OptimizersControls, MuonsMomentumOfAnotherFormIsRefused) {
  const std::string flags = "--optimizer muon";
  trace("32_optimizers", flags + " --save half", {0, kHalf});
  set_state(path("half"), "optimizer", {{"name", "muon"}, {"updates", kHalf}, {"momentum", "sum"}});
  expect_refused("32_optimizers", flags + " --layers 2 --load half",
                 "momentum of the form \"sum\"; legal is \"lerp\"");
}

}  // namespace
}  // namespace ladder::test
