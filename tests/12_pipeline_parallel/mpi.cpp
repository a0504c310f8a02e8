// 12_pipeline_parallel with processes as stages, under mpirun. Their bits: mpi_runs.txt.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class PipelineMpi : public Programs {};

TEST_F(PipelineMpi, CountsWhatThreadsCount) {
  const std::string flags =
      "--layers 4 --batch 8 --clip 1 --micro-batch 1 --precision bf16 --pipeline zb-h1 --steps 2";
  auto threads = report("12_pipeline_parallel", flags + " --pp 4"),
       processes = report(under_mpirun("12_pipeline_parallel", 4), flags);
  EXPECT_TRUE(as_predicted(processes));
  EXPECT_EQ(processes["layout"]["comm"], "mpi");
  for (const char* part : {"memory", "comm", "model"}) EXPECT_EQ(processes[part], threads[part]);
  EXPECT_EQ(processes["extra"]["traffic"], threads["extra"]["traffic"]);
  EXPECT_EQ(processes["extra"]["pipeline"]["in_flight"], threads["extra"]["pipeline"]["in_flight"]);
}

}  // namespace
}  // namespace ladder::test
