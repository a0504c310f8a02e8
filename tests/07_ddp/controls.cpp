// 07 to 10, 18 and 30, what their tables of equal runs cannot say: steps that overflow, faults that
// are told, and a state of another run.
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class RanksControls : public SameTraceSmall, public ::testing::WithParamInterface<DataParallel> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksControls, ::testing::ValuesIn(data_parallel()),
                         row_name);

// Every rank skips the step, also if only one sees the overflow. The norm is NaN then.
TEST_P(RanksControls, Overflows) {
  must_end_with(3);  // no step is taken
  const auto lines = [&](const std::string& chapter, const std::string& layout) {
    std::filesystem::remove(path("trace.jsonl"));
    const Ended ended = train(chapter,
                              "--precision fp16 --loss-scale 16777216 --layers 2 --batch 8 "
                              "--trace trace.jsonl " +
                                  layout);
    EXPECT_NE(ended.out.find("skipped, overflow"), std::string::npos) << chapter;
    return read("trace.jsonl");
  };
  const std::string one = lines("06_checkpointing", "");
  EXPECT_NE(one.find("nan"), std::string::npos);
  EXPECT_EQ(lines(GetParam().chapter, "--ranks 2 --micro-batch 1"), one);
  EXPECT_EQ(lines(GetParam().chapter, "--ranks 4"), one);
}

// A fault that never comes does not pass for one that nobody saw.
TEST_P(RanksControls, AFaultIsTold) {
  const auto told = [&](const std::string& flags) {
    return train(GetParam().chapter, "--batch 8 --bucket-mb 0.5 --layers 2 --steps 1 " + flags).err;
  };
  const std::string never = " never happened: ";
  for (const std::string count : {"1", "2"})
    EXPECT_EQ(told("--fault skip:all_reduce:100000 --ranks " + count)
                  .find("note: --fault skip:all_reduce:100000" + never),
              0)
        << count;
  EXPECT_EQ(told("--ranks 2 --fault skip:recv:100000")
                .find("note: --fault skip:recv:100000" + never + "no rank received more than "),
            0);
  // One that comes is told, too, whether it is seen or not.
  const std::string fault = "--fault skip:" + GetParam().sums;
  EXPECT_EQ(told("--ranks 2 " + fault).find("note: " + fault + " happened: a group of ranks had "),
            0);
  EXPECT_EQ(told("--ranks 2"), "");
}

TEST_P(RanksControls, AnotherOptimizersStateDiffers) {
  const std::string flags =
      "--batch 8 --clip 1 --optimizer adam --precision fp16 --loss-scale 1024 ";
  const Trace whole = trace("06_checkpointing", flags);
  trace(GetParam().chapter, flags + "--ranks 2 --save half", {0, kHalf});
  trace(GetParam().chapter, flags + "--ranks 2 --save other --seed 2", {0, kHalf});
  take_optimizer(path("half"), path("other"));
  const Trace rest = trace(GetParam().chapter, flags + "--ranks 4 --load half", {kHalf, kSteps});
  EXPECT_TRUE(different_trace(whole, rest));
}

}  // namespace
}  // namespace ladder::test
