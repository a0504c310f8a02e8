// 06_checkpointing: bytes of every policy, and the products that it computes twice, written out.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class Formulas : public MemoryRuns {
 protected:
  nlohmann::json run(const std::string& flags) const {
    return report("06_checkpointing", "--steps 1 --loss-scale 1024 " + flags);
  }
  // nano, a batch of 4.
  static constexpr int64_t C = kChannels, NH = 8, HS = C / NH, T = 16, B = 4, Vp = 256;

  int64_t activations(const std::string& policy, int64_t L, const std::string& precision) const {
    const int64_t batch = 8 * B * T + 4 * B;  // tokens, targets and losses
    return predicted(
               plan("06_checkpointing",
                    fmt::format("--layers {} --recompute {} --precision {}", L, policy, precision)),
               Mem::Activation) -
           batch;
  }
  nlohmann::json flops(const std::string& policy, int64_t L) const {
    return run(fmt::format("--layers {} --recompute {}", L, policy))["extra"]["recompute"];
  }

  static constexpr int64_t kAttention = B * NH * (T * (T + 1) / 2) * (4 * HS + 5);
  static constexpr int64_t kAttentionBack = B * NH * (T * (T + 1) / 2) * (10 * HS + 6);
  static constexpr int64_t kLinear = 2 * B * T * 12 * C * C;
};

TEST_F(Formulas, ActivationBytes) {
  struct Expected {
    std::string policy;
    int64_t L;
    int64_t streams;     // C each
    int64_t kept;        // C: all but the stream, of all blocks
    int64_t statistics;  // floats: 4 a block of the norms, NH of attention
  };
  // Beside the stream a block has 15 C: norms 2, qkv 3, att 1, mid 1, fc 4, gelu 4.
  for (const auto& [policy, L, streams, kept, statistics] :
       {Expected{"none", 8, 9, 8 * 15, 8 * (4 + NH)},
        {"none", 5, 6, 5 * 15, 5 * (4 + NH)},
        {"every:2", 8, 5 + 1, 2 * 15, 2 * (4 + NH)},
        {"every:3", 8, 4 + 2, 3 * 15, 3 * (4 + NH)},  // inputs of blocks 0, 3, 6 and the output
        {"every:3", 7, 4 + 2, 3 * 15, 3 * (4 + NH)},
        {"every:3", 6, 3 + 2, 3 * 15, 3 * (4 + NH)},
        {"sqrt", 8, 4 + 2, 3 * 15, 3 * (4 + NH)},
        {"full", 5, 6, 15, 4 + NH},
        {"selective", 5, 6, 5 * 8 + 7, 5 * 4 + NH},  // norms, att and gelu once
        {"selective:attention", 5, 6, 5 * 14 + 1, 5 * 4 + NH},
        {"selective:mlp", 5, 6, 5 * 11 + 4, 5 * (4 + NH)}})
    for (const auto& [precision, bytes] : {std::pair{"fp32", 4}, {"bf16", 2}})
      EXPECT_EQ(activations(policy, L, precision),
                B * T * (bytes * ((streams + kept + 1) * C + Vp) + 4 * (statistics + 2)))
          << policy << " " << L << " " << precision;
}

// Products of a step without recomputation: of each block forward, and backward twice as much in
// the linear layers; of the head three times 2 B T C Vp. Recomputing k blocks adds k times the
// forward of one: for `full` (L - 1) / L of a third of all blocks' linear layers, and a little
// less where attention counts, whose backward takes 2.4 times its forward.
TEST_F(Formulas, Flops) {
  for (const int64_t L : {1, 3, 8}) {
    const int64_t forward = kLinear + kAttention, backward = 2 * kLinear + kAttentionBack;
    const int64_t kept = L * (forward + backward) + 3 * 2 * B * T * C * Vp;
    const auto none = flops("none", L), full = flops("full", L), selective = flops("selective", L);
    EXPECT_EQ(none["flops"], kept);
    EXPECT_EQ(none["flops_twice"]["measured"], 0);
    EXPECT_EQ(full["flops"], kept + (L - 1) * forward);
    EXPECT_EQ(full["flops_twice"]["measured"], (L - 1) * forward);
    EXPECT_EQ(selective["flops"], kept + (L - 1) * kAttention);
    EXPECT_EQ(selective["flops_twice"]["measured"], (L - 1) * kAttention);
    EXPECT_EQ(flops("selective:attention", L), selective);
    EXPECT_EQ(flops("selective:mlp", L), none);
  }
  // Segments of 3 in 8 blocks: two of them are computed again.
  for (const char* policy : {"every:3", "sqrt"})
    EXPECT_EQ(flops(policy, 8)["flops_twice"]["measured"], 6 * (kLinear + kAttention)) << policy;
}

}  // namespace
}  // namespace ladder::test
