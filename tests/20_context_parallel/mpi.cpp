// 20_context_parallel with processes as ranks, under mpirun.
#include "tests/20_context_parallel/context_runs.h"

namespace ladder::test {
namespace {

TEST_F(ContextRuns, ProcessesHaveTheBitsOfOneRank) {
  const std::string flags = kLlama + "--batch 2 --clip 1 ";
  const Trace alone = trace("06_checkpointing", flags, kShort);
  const auto shared = [&](int ranks, const std::string& ours) {
    return trace(under_mpirun("20_context_parallel", ranks), flags + "--micro-batch 1 " + ours,
                 kShort);
  };
  for (const auto& [ranks, ours] : {std::pair{2, "--cp 2 --context gather"},
                                    {4, "--cp 4 --context ulysses"},
                                    {4, "--cp 4 --context ring"},
                                    {4, "--cp 2 --context ring"}})
    EXPECT_TRUE(same_trace(alone, shared(ranks, ours))) << ranks << " " << ours;
  EXPECT_TRUE(different_trace(alone, shared(2, "--cp 2 --context ring --fault skip:recv:1")));
}

// The user gave no --ranks.
TEST_F(ContextRuns, ADegreeThatDoesNotDivideTheProcessesIsRefused) {
  const Ended ended =
      run(under_mpirun("20_context_parallel", 2), small_run(kLlama + "--micro-batch 1 --cp 4"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("--cp 4 with 2 ranks; legal are multiples of 4 ranks, or --cp 1, 2"),
            std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace ladder::test
