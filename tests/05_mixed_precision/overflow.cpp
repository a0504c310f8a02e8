// FP16 with a loss scale that overflows: which steps are skipped is part of the run, and so it is
// the same for any layout and after a resume.
#include <algorithm>
#include <cmath>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

constexpr int64_t kEnd = 8, kStop = 3;

/// A trace whose overflowed steps are taken out: their norm is no number, and same_trace wants
/// numbers.
struct Overflowing {
  Trace trace;
  std::vector<int64_t> steps;
};

class Overflow : public SameTraceSmall {
 protected:
  // On this model scales from 2^22 on overflow; the window lets the scale grow back to it.
  const std::string flags =
      "--precision fp16 --loss-scale 8388608 --loss-scale-window 2 --batch 8 ";

  Overflowing run(const std::string& more, Range range = {0, kEnd}) const {
    return marked(trace("05_mixed_precision", flags + more, range));
  }
  static Overflowing marked(Trace trace) {
    Overflowing result{.trace = std::move(trace), .steps{}};
    for (TraceStep& step : result.trace.steps)
      if (!std::isfinite(std::strtod(step.grad_norm.c_str(), nullptr))) {
        result.steps.push_back(step.step);
        step.grad_norm = "0x0p+0";
      }
    return result;
  }
  static Overflowing after(const Overflowing& first, const Overflowing& then) {
    Overflowing all{.trace = joined(first.trace, then.trace), .steps = first.steps};
    all.steps.insert(all.steps.end(), then.steps.begin(), then.steps.end());
    return all;
  }
  static void expect_same(const Overflowing& a, const Overflowing& b) {
    EXPECT_TRUE(same_trace(a.trace, b.trace));
    EXPECT_EQ(a.steps, b.steps);
  }
};

TEST_F(Overflow, SkipsTheUpdateAndNothingElse) {
  const Overflowing got = run("");
  ASSERT_TRUE(is_whole(got.trace));
  ASSERT_GE(got.steps.size(), 3U);  // the first steps, and again after the scale has grown
  EXPECT_LE(got.steps.size(), 5U);
  EXPECT_EQ(got.steps.front(), 0);
  EXPECT_GT(got.steps.back(), 3);
  for (size_t i = 1; i < got.trace.steps.size(); ++i) {
    const bool skipped = std::find(got.steps.begin(), got.steps.end(), i) != got.steps.end();
    EXPECT_EQ(got.trace.steps[i].param_hash == got.trace.steps[i - 1].param_hash, skipped) << i;
  }
}

TEST_F(Overflow, IsTheSameForAnyMicroBatchAndThreads) {
  const Overflowing whole = run("");
  for (const std::string layout :
       {"--micro-batch 1", "--micro-batch 2 --threads 2", "--micro-batch 4 --threads 3"})
    expect_same(whole, run(layout));
}

TEST_F(Overflow, IsCountedInTheReport) {
  const Overflowing got = run("--report report.json");
  const auto scaler = nlohmann::json::parse(read("report.json")).at("extra").at("loss_scale");
  EXPECT_EQ(scaler.at("skipped"), got.steps.size());
  EXPECT_LT(scaler.at("scale"), 8388608);
}

TEST_F(Overflow, AResumeKnowsTheScale) {
  const Overflowing whole = run("");
  ASSERT_GT(whole.steps.back(), kStop);  // something is left to go wrong
  const Overflowing first = run("--save half ", {0, kStop});
  const auto all = [&] { return after(first, run("--load half ", {kStop, kEnd})); };
  expect_same(whole, all());

  // Negative controls: another scale, and a window that begins anew.
  set_state(path("half"), "loss_scale", {{"scale", 8388608}, {"good", 1}, {"skipped", 2}});
  EXPECT_NE(all().steps, whole.steps);
  EXPECT_TRUE(different_trace(whole.trace, all().trace));
  set_state(path("half"), "loss_scale", {{"scale", 2097152}, {"good", 0}, {"skipped", 2}});
  EXPECT_NE(all().steps, whole.steps);
}

TEST_F(Overflow, AFixedScaleThatOverflowsLearnsNothing) {
  must_end_with(3);
  const Overflowing got = run("--fixed-loss-scale ");
  EXPECT_EQ(got.steps.size(), size_t{kEnd});
  EXPECT_EQ(got.trace.steps.front().param_hash, got.trace.steps.back().param_hash);
}

}  // namespace
}  // namespace ladder::test
