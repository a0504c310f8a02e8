// 13_3d_parallel with processes as ranks, under mpirun. Their bits: mpi_runs.txt.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class MeshMpi : public Programs {};

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

}  // namespace
}  // namespace ladder::test
