// 04_clipping: what accumulation saves and what it costs.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class ClippingMemory : public MemoryRuns {
 protected:
  nlohmann::json run8(const std::string& flags) const {
    return report("04_clipping", "--batch 8 --threads 1 " + flags);
  }
};

TEST_F(ClippingMemory, AnEighthOfTheActivationsForTwoMoreGradients) {
  plan_only();
  const auto whole = run8(""), tree = run8("--micro-batch 1"),
             running = run8("--micro-batch 1 --accumulate running");
  const int64_t P = whole["model"]["parameters"];
  const int64_t batch = 8 * 16 * 8 + 8 * 4;  // tokens, targets and losses of all 8 stay
  EXPECT_EQ(predicted(tree, Mem::Activation) - batch,
            (predicted(whole, Mem::Activation) - batch) / 8);
  EXPECT_EQ(predicted(tree, Mem::Grad), 4 * P);
  EXPECT_EQ(predicted(tree, Mem::Workspace) - predicted(running, Mem::Workspace), 2 * 4 * P);
  EXPECT_LT(predicted(running, Mem::Workspace), predicted(whole, Mem::Workspace));
}

}  // namespace
}  // namespace ladder::test
