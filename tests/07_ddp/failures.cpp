// A rank that fails is named, and ends the others. So does a stage, and a rank of a mesh. Ranks
// that a signal stops have all done the same steps.

#include "chapters/12_pipeline_parallel/pipeline.h"
#include "tests/common/ranks.h"
#include "tests/common/refusal.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

/// Runs of which one rank fails in an operation: its chapter and flags, and --fault.
class Failing : public Programs {
 protected:
  void expect_to_end(const std::string& chapter, const std::string& flags,
                     const std::string& operation) const {
    train(chapter, flags);  // without the fault it does not fail
    const Ended ended = run(chapter, small_run(flags + " --fault fail:" + operation));
    EXPECT_EQ(ended.status, 2) << ended.err;
    EXPECT_TRUE(ended.err.starts_with("error: rank ")) << ended.err;
    EXPECT_NE(ended.err.find(": --fault: this rank fails in "), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
  }
};

TEST_F(Failing, RanksStagesAndAMesh) {
  const std::string four = "--ranks 4 --batch 8 --layers 4";
  expect_to_end("07_ddp", four, "all_reduce:1");  // number 0 counts targets
  expect_to_end("10_zero3", four, "reduce_scatter:0");
  for (const std::string schedule : kNames<PipelineKind>)
    expect_to_end("12_pipeline_parallel", "--pp 4 --batch 8 --micro-batch 2 --pipeline " + schedule,
                  "recv:1");
  expect_to_end("13_3d_parallel", "--tp 2 --dp 2 --pp 2 --batch 8 --micro-batch 1 --bucket-mb 0",
                "recv:1");
}

// All ranks stop after the same step. Otherwise checkpoint and trace would not fit each other.
class RanksStop : public SameTrace, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksStop, ::testing::ValuesIn(kDataParallel), chapter_name);

TEST_P(RanksStop, AfterTheSameStep) {
  const std::string common = "--batch 4 --layers 1 ";
  const Ended ended =
      run(signalled(GetParam(), "kill -TERM $run"),
          small_run(common + "--ranks 4 --steps 1000000 --quiet --save saved --trace trace.jsonl"));
  EXPECT_EQ(ended.status, 143);
  EXPECT_TRUE(ended.err.starts_with("interrupted: SIGTERM after ")) << ended.err;
  EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
  const auto steps = parse_trace(read("trace.jsonl"));
  const int64_t done = std::ssize(steps);
  const Trace rest = trace(GetParam(), common + "--ranks 2 --load saved", {done, done + 2});
  EXPECT_TRUE(same_trace(trace(GetParam(), common, {0, done + 2}),
                         joined({.range = {0, done}, .steps = steps}, rest)));
}

// All ranks end with the status of what only one of them knows.
TEST_F(Failing, NotTrainedIsTheStatusOfAll) {
  must_end_with(3);
  const Ended ended = train("07_ddp", "--batch 4 --layers 1 --optimizer sgd --lr 3e38 --ranks 4");
  EXPECT_NE(ended.err.find("error: the run came to its end, but it did not train"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(ended.err.find("error:"), ended.err.rfind("error:")) << "told once";
}

// A sanitizer takes more addresses than the limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(Failing, ToStart) {
  // Stacks of 1 GB, of which not all have room.
  const std::string line = "ulimit -s 1000000; ulimit -v 9000000; exec timeout 30 \"$@\"";
  const Ended ended =
      run(Program{"07_ddp", {"bash", "-c", line, "bash"}}, small_run("--ranks 16 --batch 16"));
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_TRUE(ended.err.starts_with("error: --ranks 16: only ")) << ended.err;
  EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
}
#endif

}  // namespace
}  // namespace ladder::test
