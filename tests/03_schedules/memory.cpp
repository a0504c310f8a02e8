// 03_schedules: memory as its formulas say: a ramp's small batches use the full one's buffers.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class ScheduleMemory : public MemoryRuns {};

TEST_F(ScheduleMemory, IsAsPredicted) {
  for (const std::string flags :
       {"", "--schedule cosine --warmup 2", "--batch-ramp 1:1,3:2", "--optimizer lion --batch 5"})
    EXPECT_TRUE(as_predicted(report("03_schedules", flags))) << flags;
}

TEST_F(ScheduleMemory, IsThatOfTheFullBatch) {
  EXPECT_EQ(report("03_schedules", "--batch-ramp 1:1,3:2")["memory"],
            report("02_adamw", "")["memory"]);
  // Also of a run that ends inside the ramp.
  EXPECT_EQ(report("03_schedules", "--batch-ramp 1:100")["memory"],
            report("02_adamw", "")["memory"]);
}

}  // namespace
}  // namespace ladder::test
