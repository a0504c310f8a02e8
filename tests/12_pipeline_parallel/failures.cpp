// A stage that fails is named, and ends the others.
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class StageFails : public Programs {
 protected:
  /// Room for the files of few blocks: a stage finds out when it moves the next one.
  const Program cramped{"12_pipeline_parallel",
                        {"bash", "-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "bash"}};
};

TEST_F(StageFails, AndTheRunEnds) {
  for (const std::string schedule : kPipelines) {
    const std::string flags =
        "--pp 4 --batch 8 --micro-batch 2 --recompute offload --pipeline " + schedule;
    train("12_pipeline_parallel", flags);  // with room for all it does not fail
    const Ended ended = run(cramped, small_run(flags));
    EXPECT_EQ(ended.status, 2) << ended.err;
    EXPECT_TRUE(ended.err.starts_with("error: rank ")) << ended.err;
    EXPECT_NE(ended.err.find(": --recompute offload cannot write"), std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
  }
}

}  // namespace
}  // namespace ladder::test
