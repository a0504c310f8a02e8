// What a resume needs, in chapters 01, 02 and 03: without it a run goes on as another. That
// resumed runs have the same bits: ../layouts.txt.
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

const std::vector<std::string> kOptimizers = {"adam", "adamw"};

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
  for (const std::string& name : kOptimizers) {
    const std::string flags = "--optimizer " + name;
    const Trace whole = trace("02_adamw", flags);
    trace("02_adamw", flags + " --save half", {0, kHalf});
    set_state(path("half"), "optimizer", {{"name", name}, {"updates", kHalf + 1}});
    const Trace then = trace("02_adamw", flags + " --load half", {kHalf, kSteps});
    EXPECT_TRUE(different_trace(whole, then)) << name;
  }
}

const std::vector<std::string> kSchedules = {
    "--schedule cosine --decay-steps 4",
    "--schedule linear --warmup 3 --decay-steps 5",
    "--schedule cosine --warmup-tokens 100 --decay-steps 3",
};

class ScheduleControls : public SameTraceSmall {
 protected:
  /// One run stops half-way and saves, and a new one goes on.
  Trace interrupted(const std::string& flags) const {
    const Trace first = trace("03_schedules", flags + " --save half", {0, kHalf});
    return joined(first, trace("03_schedules", flags + " --load half", {kHalf, kSteps}));
  }
};

TEST_F(ScheduleControls, ResumeOfWsdGoesOnFromAConstantRun) {
  // --steps says where the decay of wsd ends, so a first half that was told wsd would hold one.
  for (const std::string decay : {"", " --wsd-decay cosine", " --wsd-decay exponential"}) {
    const std::string wsd = "--schedule wsd --decay-steps 2" + decay;
    const Trace whole = trace("03_schedules", wsd);
    const Trace first = trace("03_schedules", "--schedule constant --save half", {0, kHalf});
    const Trace rest = trace("03_schedules", wsd + " --load half", {kHalf, kSteps});
    EXPECT_TRUE(same_trace(whole, joined(first, rest))) << wsd;
    EXPECT_TRUE(different_trace(whole, interrupted(wsd))) << wsd;
  }
}

TEST_F(ScheduleControls, WithoutDecayStepsTheEndOfTheRunMatters) {
  // A first half that was told to end there decays faster: it is no half of the long run.
  const std::string flags = "--schedule cosine";
  const Trace whole = trace("03_schedules", flags);
  EXPECT_TRUE(different_trace(whole, interrupted(flags)));
}

TEST_F(ScheduleControls, ResumeAtAnotherStepDiffers) {
  for (const std::string& flags : kSchedules) {
    const Trace whole = trace("03_schedules", flags);
    trace("03_schedules", flags + " --save half", {0, kHalf});
    set_state(path("half"), "step", kHalf + 1);
    const Trace then = trace("03_schedules", flags + " --load half", {kHalf + 1, kSteps});
    EXPECT_TRUE(different_trace(whole, then)) << flags;
  }
}

}  // namespace
}  // namespace ladder::test
