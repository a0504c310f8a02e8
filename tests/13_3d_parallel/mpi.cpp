// 13_3d_parallel with processes as ranks, under mpirun.
#include "tests/common/memory.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class MeshMpi : public SameTrace {
 protected:
  Trace started(int ranks, const std::string& flags) const {
    return trace(under_mpirun("13_3d_parallel", ranks), common + flags);
  }
  const std::string common = "--layers 4 --batch 8 --micro-batch 2 --clip 1 ";
};

TEST_F(MeshMpi, HasTheBitsOfOneRank) {
  const Trace one = trace("06_checkpointing", common);
  for (const auto& [ranks, flags] :
       {std::pair{4, "--tp 2 --pp 2"},
        {4, "--dp 2 --pp 2 --pipeline zb-h1"},
        {4, "--tp 2 --sequence-parallel"},  // dp is what is left: 2
        {8, "--tp 2 --dp 2 --pp 2 --pipeline interleaved --bucket-mb 0"}})
    EXPECT_TRUE(same_trace(one, started(ranks, flags))) << ranks << " " << flags;
}

TEST_F(MeshMpi, NegativeControlWhatIsLostIsSeen) {
  const Trace one = trace("06_checkpointing", common);
  for (const std::string fault : {"skip:all_reduce:3", "skip:reduce_scatter:1", "swap:recv:1"}) {
    const Trace lost = started(8, "--tp 2 --dp 2 --pp 2 --fault " + fault);
    ASSERT_EQ(lost.steps.size(), one.steps.size()) << fault;
    EXPECT_NE(lost.steps.back().param_hash, one.steps.back().param_hash) << fault;
  }
}

TEST_F(MeshMpi, CountsWhatThreadsCount) {
  const std::string flags = "--layers 4 --batch 8 --micro-batch 1 --precision bf16 --tp 2 --pp 2 ";
  auto threads = report("13_3d_parallel", flags + "--dp 2"),
       processes = report(under_mpirun("13_3d_parallel", 8), flags);
  EXPECT_TRUE(as_predicted(processes));
  EXPECT_EQ(processes["layout"]["comm"], "mpi");
  for (const char* part : {"memory", "comm", "model"}) EXPECT_EQ(processes[part], threads[part]);
  EXPECT_EQ(processes["extra"]["traffic"], threads["extra"]["traffic"]);
}

TEST_F(MeshMpi, ThePlanIsPrintedOnce) {
  const std::vector<std::string> flags = words("--plan-only --model nano --tp 2");
  const std::string alone = run("13_3d_parallel", flags).out;
  EXPECT_TRUE(alone.starts_with("mesh ")) << alone;
  EXPECT_EQ(run(under_mpirun("13_3d_parallel", 2), flags).out, alone);
}

TEST_F(MeshMpi, AMeshOfOtherRanksIsRefused) {
  for (const auto& [flags, says] :
       {std::pair{"--tp 2 --dp 2 --pp 2", "--tp 2 x --dp 2 x --pp 2 are 8 ranks, not 4"},
        {"--ranks 2", "--ranks 2, but mpirun has started 4; legal: 4, or no --ranks"}}) {
    const Ended ended = run(under_mpirun("13_3d_parallel", 4),
                            small_run(std::string(flags) + " --batch 8 --micro-batch 1"));
    EXPECT_EQ(ended.status, 2) << flags;
    EXPECT_NE(ended.err.find(says), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace ladder::test
