// 03_schedules: resumed runs that were told another end. The others: equal_runs.txt.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::vector<std::string> kSchedules = {
    "--schedule cosine --decay-steps 4",
    "--schedule linear --warmup 3 --decay-steps 5",
    "--schedule cosine --warmup-tokens 100 --decay-steps 3",
};

class ScheduleBits : public SameTraceExact {};
INSTANTIATE_TEST_SUITE_P(Schedules, ScheduleBits, ::testing::ValuesIn(exact_tier()), exact_name);

TEST_P(ScheduleBits, ResumeOfWsdGoesOnFromAConstantRun) {
  // --steps says where the decay of wsd ends, so a first half that was told wsd would hold one.
  for (const std::string decay : {"", " --wsd-decay cosine", " --wsd-decay exponential"}) {
    const std::string wsd = "--schedule wsd --decay-steps 2" + decay;
    const Trace whole = trace("03_schedules", wsd);
    const Trace first = trace("03_schedules", "--schedule constant --save half", {0, kHalf});
    const Trace rest = trace("03_schedules", wsd + " --load half", {kHalf, kSteps});
    EXPECT_TRUE(same_trace(whole, joined(first, rest))) << wsd;
    EXPECT_TRUE(different_trace(whole, interrupted("03_schedules", wsd))) << wsd;
  }
}

class ScheduleControls : public SameTraceSmall {};

TEST_F(ScheduleControls, WithoutDecayStepsTheEndOfTheRunMatters) {
  // A first half that was told to end there decays faster: it is no half of the long run.
  const std::string flags = "--schedule cosine";
  const Trace whole = trace("03_schedules", flags);
  EXPECT_FALSE(same_trace(whole, interrupted("03_schedules", flags)));
  EXPECT_TRUE(different_trace(whole, interrupted("03_schedules", flags)));
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
