// A rank that fails is named, and ends the others.
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class RanksFail : public Programs, public ::testing::WithParamInterface<DataParallel> {
 protected:
  /// Room for the files of no more than one block: a rank finds out when it moves the next one.
  const Program cramped{GetParam().chapter,
                        {"bash", "-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "bash"}};
  const std::string flags = "--ranks 4 --batch 8 --layers 4 --recompute offload";
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksFail, ::testing::ValuesIn(data_parallel()), row_name);

TEST_P(RanksFail, AndTheRunEnds) {
  const Ended ended = run(cramped, small_run(flags));
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_TRUE(ended.err.starts_with("error: rank ")) << ended.err;
  EXPECT_NE(ended.err.find(": --recompute offload cannot write"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
}

TEST_P(RanksFail, NegativeControlWithRoomItDoesNot) { train(GetParam().chapter, flags); }

}  // namespace
}  // namespace ladder::test
