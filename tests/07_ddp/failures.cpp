// A rank that fails is named, and ends the others. Ranks that a signal stops have all done the same
// steps.
#include <algorithm>

#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class RanksFail : public Programs, public ::testing::WithParamInterface<DataParallel> {
 protected:
  const std::string flags = "--ranks 4 --batch 8 --layers 4";
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksFail, ::testing::ValuesIn(data_parallel()), row_name);

TEST_P(RanksFail, AndTheRunEnds) {
  const Ended ended =
      run(GetParam().chapter, small_run(flags + " --fault fail:" + GetParam().sums));
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_TRUE(ended.err.starts_with("error: rank ")) << ended.err;
  EXPECT_NE(ended.err.find(": --fault: this rank fails in "), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
}

// The checkpoint and the trace are of the same step on all of them, or the run could not go on.
class RanksStop : public SameTrace, public ::testing::WithParamInterface<DataParallel> {
 protected:
  const std::string common = "--batch 4 --layers 1 ";
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksStop, ::testing::ValuesIn(data_parallel()), row_name);

TEST_P(RanksStop, AfterTheSameStep) {
  const Ended ended =
      run(signalled(GetParam().chapter, "kill -TERM $run"),
          small_run(common + "--ranks 4 --steps 1000000 --quiet --save saved --trace trace.jsonl"));
  EXPECT_EQ(ended.status, 143);
  EXPECT_TRUE(ended.err.starts_with("interrupted: SIGTERM after ")) << ended.err;
  EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
  const auto steps = parse_trace(read("trace.jsonl"));
  const int64_t done = std::ssize(steps);
  const Trace rest = trace(GetParam().chapter, common + "--ranks 2 --load saved", {done, done + 2});
  EXPECT_TRUE(same_trace(trace(GetParam().chapter, common, {0, done + 2}),
                         joined({.range = {0, done}, .steps = steps}, rest)));
}

// What one rank alone knows, that an output was lost, all end with.
TEST_P(RanksStop, NotTrainedIsTheStatusOfAll) {
  must_end_with(3);
  const Ended ended = train(GetParam().chapter, common + "--optimizer sgd --lr 3e38 --ranks 4");
  EXPECT_NE(ended.err.find("error: the run came to its end, but it did not train"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(ended.err.find("error:"), ended.err.rfind("error:")) << "told once";
}

TEST_P(RanksFail, NegativeControlWithoutAFaultItDoesNot) { train(GetParam().chapter, flags); }

// A sanitizer takes more addresses than the limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_P(RanksFail, ToStart) {
  // Stacks of 1 GB, of which not all have room.
  const std::string line = "ulimit -s 1000000; ulimit -v 9000000; exec timeout 30 \"$@\"";
  const Ended ended = run(Program{GetParam().chapter, {"bash", "-c", line, "bash"}},
                          small_run("--ranks 16 --batch 16"));
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_TRUE(ended.err.starts_with("error: --ranks 16: only ")) << ended.err;
  EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
}
#endif

}  // namespace
}  // namespace ladder::test
