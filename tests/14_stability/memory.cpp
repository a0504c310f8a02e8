// 14_stability: memory as its formulas say; what the norms of rows cost.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class StabilityMemory : public MemoryRuns {
 protected:
  nlohmann::json run8(const std::string& flags) const {
    return report("14_stability", "--batch 8 --threads 1 " + flags);
  }
};

TEST_F(StabilityMemory, IsAsPredicted) {
  for (const std::string flags :
       {"", "--micro-batch 2 --agc 0.1 --clip 1",
        "--batch 7 --micro-batch 1 --layers 2 --channels 24 --heads 3 --agc 0.1",
        "--spike-guard 3 --bad-batch 1", "--optimizer adamw8bit --agc 0.1",
        "--backend ref --layers 1 --agc 0.1"})
    EXPECT_TRUE(as_predicted(report("14_stability", flags))) << flags;
}

TEST_F(StabilityMemory, AllOffIsChapter04) {
  EXPECT_EQ(report("14_stability", "")["memory"], report("04_clipping", "")["memory"]);
}

TEST_F(StabilityMemory, AgcKeepsTwoNormsARow) {
  plan_only();
  // The longest matrix has 4 C rows; a norm is 12 limbs of 8 bytes.
  EXPECT_EQ(predicted(run8("--agc 0.1"), Mem::Workspace) - predicted(run8(""), Mem::Workspace),
            2 * 4 * kChannels * 12 * 8);
}

}  // namespace
}  // namespace ladder::test
