// A step whose loss or gradient is no number is skipped, in a whole run.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class Skipped : public SameTrace {};

TEST_F(Skipped, AStepWithNaNChangesNothingAndIsSaid) {
  // The first update throws the weights out of range: the next loss is no number.
  const std::string flags = "--optimizer sgd --lr 1e30 --trace trace.jsonl";
  must_end_with(3);
  const Ended ended = train("04_clipping", flags);
  EXPECT_NE(ended.out.find("step 1: skipped, "), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("step 2: skipped, "), std::string::npos) << ended.out;
  const auto skipped = report("04_clipping", flags)["skipped"];
  ASSERT_EQ(skipped.size(), 2U) << skipped;
  EXPECT_EQ(skipped[1]["step"], 2);
  EXPECT_EQ(skipped[1]["why"], "the loss is NaN or infinite");
  const auto steps = parse_trace(read("trace.jsonl"));
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[1].loss, "nan");
  EXPECT_EQ(steps[1].param_hash, steps[0].param_hash);
  EXPECT_EQ(steps[2].param_hash, steps[0].param_hash);
}

TEST_F(Skipped, NegativeControlTheChapterBeforeTakesTheStep) {
  const std::string flags = "--optimizer sgd --lr 1e30 --trace trace.jsonl";
  must_end_with(3);
  train("03_schedules", flags);
  const auto steps = parse_trace(read("trace.jsonl"));
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_NE(steps[1].param_hash, steps[0].param_hash);
}

}  // namespace
}  // namespace ladder::test
