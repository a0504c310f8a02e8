// The spike guard in a whole run: an injected bad batch, and a resume inside the window.
#include <cstdlib>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

constexpr int64_t kEnd = 40, kBad = 30;

class SpikeRun : public SameTrace {
 protected:
  const std::string calm =
      "--layers 2 --channels 32 --heads 2 --batch 16 --optimizer sgd --momentum 0.9 --lr 0.05 ";
  const std::string hurt = calm + "--bad-batch 30 ";
  const std::string guarded = hurt + "--spike-guard 6 ";

  Trace run_to_end(const std::string& flags) const {
    return trace("14_stability", flags, {0, kEnd});
  }

  static double loss(const TraceStep& step) { return std::strtod(step.loss.c_str(), nullptr); }
  static double mean_loss_after(const Trace& trace, size_t step) {
    double sum = 0;
    for (size_t i = step + 1; i < trace.steps.size(); ++i) sum += loss(trace.steps[i]);
    return sum / static_cast<double>(trace.steps.size() - step - 1);
  }
};

TEST_F(SpikeRun, ABadBatchIsSkippedAndTheRunGoesOn) {
  const Trace clean = run_to_end(calm), skipped = run_to_end(guarded), trained = run_to_end(hurt);
  ASSERT_TRUE(is_whole(clean) && is_whole(skipped) && is_whole(trained));
  const auto hash = [](const Trace& trace, size_t step) { return trace.steps[step].param_hash; };

  // Before the bad batch all three are one run. It is bad, and the guarded run does not learn it.
  EXPECT_EQ(hash(skipped, kBad - 1), hash(clean, kBad - 1));
  EXPECT_EQ(hash(trained, kBad - 1), hash(clean, kBad - 1));
  EXPECT_GT(loss(skipped.steps[kBad]), 2 * loss(clean.steps[kBad]));
  EXPECT_EQ(hash(skipped, kBad), hash(skipped, kBad - 1));
  EXPECT_NE(hash(trained, kBad), hash(trained, kBad - 1));

  // One update fewer: 2% when this was written; one bad update: 23%.
  const double usual = mean_loss_after(clean, kBad);
  EXPECT_LT(mean_loss_after(skipped, kBad), 1.05 * usual);
  EXPECT_GT(mean_loss_after(trained, kBad), 1.15 * usual);
  EXPECT_TRUE(different_trace(skipped, trained));
}

TEST_F(SpikeRun, SaysWhatItSkips) {
  const Ended ended = train("14_stability", guarded + "--steps 40");
  EXPECT_NE(ended.out.find("step 30: skipped, "), std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("skipped"), ended.out.rfind("skipped")) << ended.out;
  const auto skipped = report("14_stability", guarded + "--steps 40")["skipped"];
  ASSERT_EQ(skipped.size(), 1U) << skipped;
  EXPECT_EQ(skipped[0]["step"], kBad);
  EXPECT_TRUE(skipped[0]["why"].get<std::string>().starts_with("loss ")) << skipped;
  EXPECT_EQ(report("14_stability", calm + "--steps 40")["skipped"].size(), 0U);
}

TEST_F(SpikeRun, AResumeKnowsTheWindow) {
  const Trace whole = run_to_end(guarded);
  const Trace first = trace("14_stability", guarded + "--save half ", {0, kBad - 2});
  const auto rest = [&] {
    return joined(first, trace("14_stability", guarded + "--load half ", {kBad - 2, kEnd}));
  };
  EXPECT_TRUE(same_trace(whole, rest()));

  // Negative control: a guard that has forgotten its window lets the bad batch pass.
  set_state(path("half"), "spike_guard", {{"losses", {2.0}}, {"norms", {1.0}}, {"in_a_row", 0}});
  EXPECT_TRUE(different_trace(whole, rest()));
}

}  // namespace
}  // namespace ladder::test
