// 30_hsdp: bytes by kind of link, written out. Memory: tests/golden/bytes.json.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class HsdpBytes : public MemoryRuns {
 protected:
  nlohmann::json run(int64_t N, int64_t R, const std::string& flags = "") const {
    return report("30_hsdp", fmt::format("--layers {} --steps 1 --batch 16 --ranks {} --replicas "
                                         "{} {}",
                                         L, N, R, flags));
  }
  /// Elements of a block, cut into S shards.
  static int64_t block(int64_t S) { return (12 * C * C + 13 * C + 64 * S - 1) / (64 * S) * 64 * S; }
  static constexpr int64_t L = 3, C = kChannels;
};

// Inside: chapter 10's traffic on S ranks. Across: an all-reduce of P / S, however many
// micro-steps there are.
TEST_F(HsdpBytes, ByKindOfLink) {
  for (const auto& [N, R] : {std::pair{4, 1}, {4, 2}, {4, 4}, {8, 2}, {8, 4}})
    for (const int64_t GA : {1, 2}) {
      const int64_t S = N / R, P = parameters(L, S), B = 16;
      const auto extra = run(N, R, fmt::format("--micro-batch {}", B / N / GA))["extra"];
      const int64_t gathered = GA * (P + (L - 1) * block(S)) - (GA - 1) * block(S);
      const int64_t inside = 4 * (GA * P + gathered) / S * (S - 1),
                    across = 2 * 4 * P / S / R * (R - 1);
      for (const char* which : {"predicted", "measured"}) {
        EXPECT_EQ(extra["traffic_inside"][which], inside) << N << " " << R << " " << GA;
        EXPECT_EQ(extra["traffic_across"][which], across) << N << " " << R << " " << GA;
        EXPECT_EQ(extra["traffic"][which], inside + across) << N << " " << R << " " << GA;
      }
    }
}

TEST_F(HsdpBytes, AreOfTheMeshThatTheReportNames) {
  const auto layout = run(8, 2)["layout"];
  EXPECT_EQ(layout["ranks"], 8);
  EXPECT_EQ(layout["dp"], 4);
  EXPECT_EQ(layout["replicas"], 2);
}

}  // namespace
}  // namespace ladder::test
