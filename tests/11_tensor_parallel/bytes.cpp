// 11_tensor_parallel: what a share of the layers takes and sends, written out. All else that is
// counted: tests/golden/bytes.json.
#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class TensorParallelBytes : public MemoryRuns {
 protected:
  // nano, but for layers. Eight ranks take as many channels as it has.
  static constexpr int64_t L = 3, C = 128, T = 16, Vp = 256, NH = 8;
  nlohmann::json run(int64_t tp, const std::string& flags) const {
    return report("11_tensor_parallel",
                  fmt::format("--layers {} --channels {} --steps 1 --tp {} {}", L, C, tp, flags));
  }
  /// Elements of what a rank has: whole are the positions, norms and biases behind a sum. Each
  /// tensor is a multiple of 64.
  static int64_t parameters(int64_t tp) {
    const int64_t qkv_bias = (3 * C / tp + 63) / 64 * 64;
    return 2 * Vp * C / tp + T * C + L * 12 * C * C / tp + L * (qkv_bias + 4 * C / tp + 6 * C) +
           2 * C;
  }
};

// Megatron-LM keeps s b h (10 + 24 / t) without its dropout masks and with a fused attention; here
// it is 4 C of stream, mid and two norms, and 12 C / t of qkv, att, fc and gelu, in F32.
TEST_F(TensorParallelBytes, WhatAShareOfTheLayersTakes) {
  plan_only();
  const int64_t B = 4;
  for (const int64_t tp : {1, 2, 4, 8}) {
    const auto got = run(tp, fmt::format("--batch {}", B));
    EXPECT_EQ(predicted(got, Mem::Param), 4 * parameters(tp));
    EXPECT_EQ(predicted(got, Mem::Optim), 8 * parameters(tp));
    const int64_t blocks = L * (4 * C + 12 * C / tp + 4 + NH / tp);
    const int64_t ends = C + C + 2 + Vp / tp;  // the last stream, its norm, logits
    const int64_t tokens = 2 + 3;              // tokens and targets; three sums
    EXPECT_EQ(predicted(got, Mem::Activation), 4 * B * T * (blocks + ends + tokens) + 4 * B);
  }
}

TEST_F(TensorParallelBytes, FourAllReducesABlock) {
  const int64_t B = 4;
  for (const int64_t tp : {2, 4, 8}) {
    const int64_t one = 2 * (tp - 1) * 4 * B * T * C / tp;
    const auto sent = [&](const std::string& flags) {
      return run(tp, flags)["extra"]["traffic"]["measured"].get<int64_t>();
    };
    EXPECT_EQ(sent("--batch 4"), (4 * L + 2) * one);
    EXPECT_EQ(sent("--batch 4 --micro-batch 1"), (4 * L + 2) * one);
    EXPECT_EQ(sent("--batch 4 --recompute full"), (4 * L + 2 + 2 * (L - 1)) * one);
    EXPECT_EQ(sent("--batch 4 --recompute selective"), (4 * L + 2) * one);
    EXPECT_EQ(sent("--batch 4 --precision bf16"), (4 * L + 2) * one / 2);
  }
}

}  // namespace
}  // namespace ladder::test
