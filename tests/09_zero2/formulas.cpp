// 09_zero2: bytes in memory and on the wire, written out.
#include "tests/common/memory.h"
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class Zero2Bytes : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& chapter, int64_t N, const std::string& flags) const {
    return report(chapter,
                  fmt::format("--layers {} --steps 1 --batch 16 --ranks {} {}", L, N, flags));
  }
  nlohmann::json run(int64_t N, const std::string& flags) const {
    return run("09_zero2", N, flags);
  }
  static constexpr int64_t L = 3, C = kChannels;
};

// Besides what 08 has: the gradient of one section whole, or of two, so that one travels while the
// next is computed. Accumulation takes buffers of shards.
TEST_F(Zero2Bytes, WholeGradientsOfASectionOrTwo) {
  plan_only();
  for (const int64_t N : {2, 4}) {
    const int64_t P = parameters(L, N);
    const int64_t block = (12 * C * C + 13 * C + 64 * N - 1) / (64 * N) * 64 * N;
    const auto more = [&](const std::string& flags) {
      return predicted(run(N, flags), Mem::Workspace) -
             predicted(run("08_zero1", N, flags), Mem::Workspace);
    };
    EXPECT_EQ(more("--ddp overlapped"), 2 * 4 * block);
    EXPECT_EQ(more("--ddp bucketed"), 4 * block);
    // Four micro-steps: two buffers, of which the second is Workspace.
    const std::string four = fmt::format("--micro-batch {}", 16 / N / 4);
    EXPECT_EQ(more(four), 2 * 4 * block + 4 * P / N - 4 * P);
  }
}

TEST_F(Zero2Bytes, EveryMicroStepSendsItsGradients) {
  for (const int64_t N : {2, 4})
    for (const int64_t GA : {1, 2, 4})
      for (const auto& [precision, bytes] : {std::pair{"fp32", 4}, {"bf16", 2}})
        EXPECT_EQ(run(N, fmt::format("--micro-batch {} --precision {}", 16 / N / GA,
                                     precision))["extra"]["traffic"]["measured"],
                  (4 * GA + bytes) * (parameters(L, N) / N) * (N - 1))
            << N << " " << GA << " " << precision;
}

}  // namespace
}  // namespace ladder::test
