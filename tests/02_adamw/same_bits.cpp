// 02_adamw: with --optimizer sgd the same bits as 01; every optimizer's for any threads and over a
// resume.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::vector<std::string> kOptimizers = {"sgd --momentum 0.9", "adam",     "adamw", "lion",
                                              "adafactor",          "adamw8bit"};

class AdamWBits : public SameTraceExact {};
INSTANTIATE_TEST_SUITE_P(AdamW, AdamWBits, ::testing::ValuesIn(exact_tier()), exact_name);

TEST_P(AdamWBits, SgdIsChapter01) {
  for (const std::string flags : {"", " --momentum 0.9", " --momentum 0.9 --nesterov"})
    EXPECT_TRUE(same_trace(trace("01_sgd", flags), trace("02_adamw", "--optimizer sgd" + flags)))
        << flags;
}

TEST_P(AdamWBits, Resume) {
  for (const std::string& name : kOptimizers) {
    const std::string flags = "--optimizer " + name;
    EXPECT_TRUE(same_trace(trace("02_adamw", flags), interrupted("02_adamw", flags))) << name;
  }
}

class AdamWControls : public SameTraceSmall {};

TEST_F(AdamWControls, AnyThreads) {
  for (const std::string& name : kOptimizers) {
    const std::string flags = "--model tiny --seq-len 9 --optimizer " + name;
    EXPECT_TRUE(same_trace(trace("02_adamw", flags), trace("02_adamw", flags + " --threads 3")))
        << name;
  }
}

TEST_F(AdamWControls, OtherOptimizersDiffer) {
  const std::vector<std::string> others = {"adamw",
                                           "adam",
                                           "lion",
                                           "adafactor",
                                           "adamw8bit",
                                           "sgd",
                                           "adamw --weight-decay 0.1000001",
                                           "adamw --beta1 0.900001",
                                           "adamw --beta2 0.950001",
                                           "adamw --eps 1.00001e-8",
                                           "lion --beta1 0.91",
                                           "sgd --momentum 0.1",
                                           "adafactor --weight-decay 0"};
  std::vector<Trace> traces;
  for (const std::string& name : others) traces.push_back(trace("02_adamw", "--optimizer " + name));
  for (size_t i = 0; i < others.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_TRUE(different_trace(traces[i], traces[j])) << others[i] << " and " << others[j];
}

TEST_F(AdamWControls, SgdDoesNotDecay) {
  EXPECT_TRUE(same_trace(trace("02_adamw", "--optimizer sgd"),
                         trace("02_adamw", "--optimizer sgd --weight-decay 0.5")));
}

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
