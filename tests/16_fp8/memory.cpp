// 16_fp8: bytes of a parameter and of an activation.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class Fp8Memory : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& flags) const {
    return report("16_fp8", "--steps 1 --loss-scale 1024 --precision " + flags);
  }
};

TEST_F(Fp8Memory, TrafficIsAsPredicted) {
  const auto traffic =
      run("fp8 --ranks 2 --recompute full --layers 2 --batch 8")["extra"]["traffic"];
  EXPECT_EQ(traffic["predicted"], traffic["measured"]);
  EXPECT_GT(traffic["measured"], 0);
}

class Fp8Bytes : public Fp8Memory {
 protected:
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

}  // namespace
}  // namespace ladder::test
