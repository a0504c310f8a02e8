// 29_monitor: memory as its formulas say; what watching costs.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class MonitorMemory : public MemoryRuns {
 protected:
  nlohmann::json run8(const std::string& flags) const {
    return report("29_monitor", "--batch 8 --layers 2 --threads 1 " + flags);
  }
};

// A copy of the old weights of a shard; limbs of 3 norms and one count for each of 28 tensors, of 3
// streams and of each rank; and the largest elements. In 16 bits, an F32 copy of a stream.
TEST_F(MonitorMemory, ACopyOfTheShardAndLimbs) {
  plan_only();
  for (const int64_t N : {1, 2, 4}) {
    const std::string ranks = fmt::format("--ranks {} ", N);
    const auto more = [&](const std::string& flags) {
      return predicted(run8(ranks + flags + " --watch-every 1"), Mem::Workspace) -
             predicted(run8(ranks + flags), Mem::Workspace);
    };
    const int64_t watched = 4 * parameters(2, N) / N + 8 * (12 * (3 * 29 + 3 + N) + 29) + 8 * 29;
    EXPECT_EQ(more(""), watched) << N;
    EXPECT_EQ(more("--precision bf16"), watched + 4 * 8 / N * 16 * kChannels) << N;
  }
}

}  // namespace
}  // namespace ladder::test
