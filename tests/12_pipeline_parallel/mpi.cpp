// 12_pipeline_parallel with processes as stages, under mpirun.
#include "tests/common/memory.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class PipelineMpi : public SameTrace {
 protected:
  Trace started(int stages, const std::string& flags) const {
    return trace(under_mpirun("12_pipeline_parallel", stages), common + flags);
  }
  const std::string common = "--layers 4 --batch 8 --clip 1 ";
};

TEST_F(PipelineMpi, HasTheBitsOfOneRank) {
  const Trace one = trace("06_checkpointing", common);
  for (const auto& [stages, schedule] :
       {std::pair{2, "interleaved"}, {2, "gpipe"}, {4, "1f1b"}, {4, "zb-h1"}})
    EXPECT_TRUE(
        same_trace(one, started(stages, std::string("--micro-batch 2 --pipeline ") + schedule)))
        << stages << " " << schedule;
}

TEST_F(PipelineMpi, NegativeControlALostMessageIsSeen) {
  const Trace one = trace("06_checkpointing", common);
  const Trace lost = started(2, "--micro-batch 2 --fault swap:recv:3");
  EXPECT_TRUE(different_trace(one, lost));
}

TEST_F(PipelineMpi, CountsWhatThreadsCount) {
  const std::string flags = common + "--micro-batch 1 --precision bf16 --pipeline zb-h1 --steps 2";
  auto threads = report("12_pipeline_parallel", flags + " --pp 4"),
       processes = report(under_mpirun("12_pipeline_parallel", 4), flags);
  EXPECT_TRUE(as_predicted(processes));
  EXPECT_EQ(processes["layout"]["comm"], "mpi");
  for (const char* part : {"memory", "comm", "model"}) EXPECT_EQ(processes[part], threads[part]);
  EXPECT_EQ(processes["extra"]["traffic"], threads["extra"]["traffic"]);
  EXPECT_EQ(processes["extra"]["pipeline"]["in_flight"], threads["extra"]["pipeline"]["in_flight"]);
}

// The user gave no --ranks.
TEST_F(PipelineMpi, AnotherDegreeThanThatOfMpirunIsRefused) {
  const Ended ended = run(under_mpirun("12_pipeline_parallel", 4), small_run("--pp 2"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("--pp 2 with 4 ranks: each of them is a stage; legal are --pp 4, or 0"),
            std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace ladder::test
