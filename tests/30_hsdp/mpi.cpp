// 30_hsdp with processes as ranks, under mpirun.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class HsdpProcesses : public SameTraceSmall {};

TEST_F(HsdpProcesses, HaveTheBitsOfOneRank) {
  const std::string flags = "--batch 16 --clip 1 ";
  const Trace alone = trace("06_checkpointing", flags);
  for (const std::string split : {"--replicas 2 --micro-batch 2", "--replicas 4", "--replicas 1"})
    EXPECT_TRUE(same_trace(alone, trace(under_mpirun("30_hsdp", 4), flags + split))) << split;
  EXPECT_TRUE(different_trace(
      alone, trace(under_mpirun("30_hsdp", 4), flags + "--replicas 2 --fault skip:all_reduce:0")));
}

}  // namespace
}  // namespace ladder::test
