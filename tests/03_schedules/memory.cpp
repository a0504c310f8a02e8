// 03_schedules: memory as its formulas say: a schedule takes none.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class ScheduleMemory : public MemoryRuns {};

TEST_F(ScheduleMemory, IsAsPredicted) {
  for (const std::string flags : {"", "--schedule cosine --warmup 2", "--optimizer lion --batch 5"})
    EXPECT_TRUE(as_predicted(report("03_schedules", flags))) << flags;
}

TEST_F(ScheduleMemory, IsThatOfChapter02) {
  EXPECT_EQ(report("03_schedules", "--schedule cosine --warmup 2")["memory"],
            report("02_adamw", "")["memory"]);
}

}  // namespace
}  // namespace ladder::test
