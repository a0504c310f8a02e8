// A stage that fails is named, and ends the others.
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class StageFails : public Programs {};

TEST_F(StageFails, AndTheRunEnds) {
  for (const std::string schedule : kNames<PipelineKind>) {
    const std::string flags = "--pp 4 --batch 8 --micro-batch 2 --pipeline " + schedule;
    train("12_pipeline_parallel", flags);  // without the fault it does not fail
    const Ended ended = run("12_pipeline_parallel", small_run(flags + " --fault fail:recv:1"));
    EXPECT_EQ(ended.status, 2) << ended.err;
    EXPECT_TRUE(ended.err.starts_with("error: rank ")) << ended.err;
    EXPECT_NE(ended.err.find(": --fault: this rank fails in "), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
  }
}

}  // namespace
}  // namespace ladder::test
