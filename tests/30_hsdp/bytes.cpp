// 30_hsdp: bytes in memory and by kind of link, written out.
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

// 1/S of what chapter 06 has, on every rank.
TEST_F(HsdpBytes, AShardOfAGroup) {
  for (const auto& [N, R] : {std::pair{4, 1}, {4, 2}, {4, 4}, {8, 2}, {8, 4}}) {
    const int64_t S = N / R, P = parameters(L, S);
    const auto bf16 = run(N, R, "--precision bf16");
    EXPECT_TRUE(as_predicted(bf16)) << N << " ranks, " << R << " groups";
    for (size_t r = 0; r < static_cast<size_t>(N); ++r) {
      EXPECT_EQ(measured(bf16, Mem::Param, r), 2 * P / S);
      EXPECT_EQ(measured(bf16, Mem::Master, r), 4 * P / S);
      EXPECT_EQ(measured(bf16, Mem::Grad, r), 4 * P / S);
      EXPECT_EQ(measured(bf16, Mem::Optim, r), 8 * P / S);
    }
  }
}

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

}  // namespace
}  // namespace ladder::test
