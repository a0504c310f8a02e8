// 14_stability: what the norms of rows cost.
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

TEST_F(StabilityMemory, AgcKeepsTwoNormsARow) {
  plan_only();
  // The longest matrix has 4 C rows; a norm is 12 limbs of 8 bytes.
  EXPECT_EQ(predicted(run8("--agc 0.1"), Mem::Workspace) - predicted(run8(""), Mem::Workspace),
            2 * 4 * kChannels * 12 * 8);
}

}  // namespace
}  // namespace ladder::test
