// A rank of a mesh that fails is named, and ends the others.
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class MeshFails : public Programs {};

TEST_F(MeshFails, AndTheRunEnds) {
  const std::string flags = "--tp 2 --dp 2 --pp 2 --batch 8 --micro-batch 1 --bucket-mb 0";
  train("13_3d_parallel", flags);  // without the fault it does not fail
  const Ended ended = run("13_3d_parallel", small_run(flags + " --fault fail:recv:1"));
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_TRUE(ended.err.starts_with("error: rank ")) << ended.err;
  EXPECT_NE(ended.err.find(": --fault: this rank fails in "), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
}

}  // namespace
}  // namespace ladder::test
