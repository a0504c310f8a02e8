// 29_monitor with processes as ranks, under mpirun: the curves of threads.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class MonitorProcesses : public SameTraceSmall {
 protected:
  std::string curves(const Program& program, const std::string& flags) const {
    std::filesystem::remove_all(path("events"));
    train(program,
          "--batch 8 --steps 2 --layers 2 --watch-every 1 --event-clock step "
          "--events events " +
              flags);
    return read("events/curves/events.out.tfevents.000001.ladder");
  }
};

TEST_F(MonitorProcesses, WriteTheCurvesOfThreads) {
  const std::string threads = curves("29_monitor", "--ranks 2");
  EXPECT_GT(threads.size(), 10'000U);
  EXPECT_TRUE(threads == curves(under_mpirun("29_monitor", 2), ""));
  EXPECT_FALSE(threads == curves(under_mpirun("29_monitor", 2), "--fault skip:reduce_scatter:0"));
}

}  // namespace
}  // namespace ladder::test
