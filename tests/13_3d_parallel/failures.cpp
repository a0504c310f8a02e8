// A rank of a mesh that fails is named, and ends the others.
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class MeshFails : public Programs {
 protected:
  /// Room for the files of few blocks: a rank finds out when it moves the next one.
  const Program cramped{"13_3d_parallel",
                        {"bash", "-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "bash"}};
};

TEST_F(MeshFails, AndTheRunEnds) {
  const std::string flags =
      "--tp 2 --dp 2 --pp 2 --batch 8 --micro-batch 1 --recompute offload --bucket-mb 0";
  train("13_3d_parallel", flags);  // with room for all it does not fail
  const Ended ended = run(cramped, small_run(flags));
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_TRUE(ended.err.starts_with("error: rank ")) << ended.err;
  EXPECT_NE(ended.err.find(": --recompute offload cannot write"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
}

}  // namespace
}  // namespace ladder::test
