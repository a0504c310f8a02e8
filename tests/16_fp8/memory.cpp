// 14, 16 and 17: bytes of a parameter and of an activation.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class Fp8Bytes : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& flags) const {
    return report("16_fp8", "--steps 1 --loss-scale 1024 --precision " + flags);
  }
  // nano, a batch of 4. No tensor of it needs padding.
  static constexpr int64_t L = 8, C = kChannels, T = 16, B = 4;
};

// Beside what BF16 has: a byte for each factor of the linear layers, and 12 scales of 8 bytes a
// block.
TEST_F(Fp8Bytes, OfAParameter) {
  plan_only();
  const auto bf16 = run("bf16"), fp8 = run("fp8");
  EXPECT_EQ(predicted(fp8, Mem::Param) - predicted(bf16, Mem::Param), 12 * L * C * C + 12 * 8 * L);
  for (const Mem mem : {Mem::Master, Mem::Grad, Mem::Optim})
    EXPECT_EQ(predicted(fp8, mem), predicted(bf16, mem)) << static_cast<int>(mem);
}

// Codes of what products read take 7 C bytes; of both norms and GELU one block's are left.
TEST_F(Fp8Bytes, OfActivations) {
  plan_only();
  const auto bf16 = run("bf16"), fp8 = run("fp8");
  const int64_t kept = predicted(fp8, Mem::Activation) - predicted(bf16, Mem::Activation),
                room = predicted(fp8, Mem::Workspace) - predicted(bf16, Mem::Workspace);
  EXPECT_EQ(kept, B * T * (L * 7 * C - 2 * (L - 1) * 6 * C));
  EXPECT_EQ(room, B * T * 8 * C);
  EXPECT_EQ(kept + room, B * T * C * (20 - 5 * L));
}

// 14: what the norms of rows cost.

using StabilityMemory = MemoryRuns;

TEST_F(StabilityMemory, AgcKeepsTwoNormsARow) {
  plan_only();
  // The longest matrix has 4 C rows; a norm is 12 limbs of 8 bytes.
  EXPECT_EQ(predicted(report("14_stability", "--agc 0.1"), Mem::Workspace) -
                predicted(report("14_stability", ""), Mem::Workspace),
            2 * 4 * kChannels * 12 * 8);
}

// 17: fewer logits, and the sums that the chunks take.

using ChunkedHeadMemory = MemoryRuns;

TEST_F(ChunkedHeadMemory, LogitsShrinkAndSumsGrow) {
  plan_only();
  constexpr int64_t T = 16, C = kChannels, Vp = 256;
  const auto whole = report("17_head_chunks", "--steps 1 --batch 16");
  for (const auto& [chunk, spare] : {std::pair{8, 0}, {4, 1}, {2, 2}, {1, 3}}) {
    const auto got =
        report("17_head_chunks", fmt::format("--steps 1 --batch 16 --head-chunk {}", chunk));
    EXPECT_EQ(predicted(whole, Mem::Activation) - predicted(got, Mem::Activation),
              4 * (16 - chunk) * T * Vp)
        << chunk;
    EXPECT_EQ(predicted(got, Mem::Workspace) - predicted(whole, Mem::Workspace), 4 * spare * Vp * C)
        << chunk;
  }
}

}  // namespace
}  // namespace ladder::test
