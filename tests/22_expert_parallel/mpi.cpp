// 22_expert_parallel with processes as ranks, under mpirun.
#include "tests/22_expert_parallel/expert_runs.h"

namespace ladder::test {
namespace {

TEST_F(ExpertRuns, ProcessesHaveTheBitsOfOneRank) {
  const Trace alone = one(kDropping);
  const auto shared = [&](int ranks, const std::string& ours) {
    return trace(under_mpirun(k22, ranks), of_model(kDropping + " " + ours), kShort);
  };
  EXPECT_TRUE(same_trace(alone, shared(2, "--ep 2 --micro-batch 4")));
  EXPECT_TRUE(same_trace(alone, shared(4, "--ep 2")));
  EXPECT_TRUE(different_trace(alone, shared(2, "--ep 2 --fault skip:all_to_all:9")));
}

// The user gave no --ranks.
TEST_F(ExpertRuns, ADegreeThatDoesNotDivideTheProcessesIsRefused) {
  const Ended ended = run(under_mpirun(k22, 2), small_run(of_model("--ep 4")));
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("--ep 4 with 2 ranks; legal are multiples of 4 ranks, or --ep 1, 2"),
            std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace ladder::test
