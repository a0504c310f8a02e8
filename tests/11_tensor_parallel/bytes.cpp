// 11_tensor_parallel: bytes in memory and on the wire, written out.
#include <array>

#include "tests/common/memory.h"

namespace ladder::test {
namespace {

class TensorParallelBytes : public MemoryRuns {
 protected:
  // nano, but for layers. Eight ranks take as many channels as it has.
  static constexpr int64_t L = 3, C = 128, T = 16, Vp = 256, NH = 8;
  // A sequence has 16 chunks whatever its length. Tests of their sums run on shorter sequences, so
  // that no formula takes positions for chunks.
  static constexpr int64_t kChunks = 16, kShort = 8;
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

// The paper's s b h (34 / t): here 16 C / t. And without what is cheap, norms, att and gelu, 9 C /
// t.
TEST_F(TensorParallelBytes, WhatAShareOfTheSequencesTakes) {
  plan_only();
  const int64_t B = 4, tokens = 4 * B * T * (2 + 3) + 4 * B;
  const auto activations = [&](int64_t tp, const std::string& flags) {
    const auto got = run(tp, fmt::format("--batch {} --sequence-parallel {}", B, flags));
    for (size_t r = 1; r < static_cast<size_t>(tp); ++r)
      EXPECT_EQ(predicted(got, Mem::Activation, r), predicted(got, Mem::Activation));
    return predicted(got, Mem::Activation) - tokens;
  };
  for (const int64_t tp : {2, 4, 8}) {
    const int64_t ends = C + C + 2 + Vp;
    EXPECT_EQ(activations(tp, ""), 4 * B * T * (L * (16 * C + 4 + NH) + ends) / tp);
    EXPECT_EQ(activations(tp, "--recompute selective"),
              4 * B * T * (L * (9 * C + 4) + 7 * C + NH + ends) / tp);
    EXPECT_EQ(activations(tp, "--recompute full"),
              4 * B * T * (L * C + 15 * C + 4 + NH + ends) / tp);
  }
  // One rank has no other to share with.
  EXPECT_EQ(activations(1, ""), predicted(run(1, "--batch 4"), Mem::Activation) - tokens);
}

// Product, stream, branch and norm are in shares. Whole are a rank's summand, what is gathered for
// a part and for its gradient, and the sums of chunks: of each sequence 16 for a norm's gain and 16
// for its bias, in FP32.
TEST_F(TensorParallelBytes, WorkspaceOfAShareOfTheSequences) {
  plan_only();
  const int64_t B = 4;
  for (const int64_t tp : {2, 4, 8}) {
    const std::string flags = fmt::format("--batch {} --seq-len {}", B, kShort);
    const int64_t plain = predicted(run(tp, flags), Mem::Workspace);
    const int64_t shared = predicted(run(tp, flags + " --sequence-parallel"), Mem::Workspace);
    const int64_t one = 4 * B * kShort * C, sums = 4 * B * 2 * kChunks * C;
    EXPECT_EQ(shared - plain, 3 * one + sums - 4 * one * (tp - 1) / tp);
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

// An all-reduce is a reduce-scatter and an all-gather; backward gathers once more what each part of
// a block has read. Of each norm backward gathers the sums of 16 chunks of each sequence, for the
// gain and for the bias: a rank has 16 / t of them, in FP32 at any precision, and they are not
// reduced.
TEST_F(TensorParallelBytes, FourReduceScattersAndSixAllGathersABlock) {
  const int64_t B = 4;
  for (const int64_t tp : {2, 4, 8}) {
    const int64_t one = (tp - 1) * 4 * B * kShort * C / tp;
    const int64_t norms = (2 * L + 1) * 2 * (tp - 1) * 4 * B * kChunks * C / tp;
    const auto sent = [&](const std::string& flags) {
      const auto got =
          run(tp, fmt::format("--batch {} --seq-len {} --sequence-parallel {}", B, kShort, flags));
      return got["extra"]["traffic"]["measured"].get<int64_t>();
    };
    EXPECT_EQ(sent(""), (10 * L + 4) * one + norms);
    EXPECT_EQ(sent("--micro-batch 1"), (10 * L + 4) * one + norms);
    EXPECT_EQ(sent("--recompute full"), (10 * L + 4 + 4 * (L - 1)) * one + norms);
    EXPECT_EQ(sent("--recompute selective"), (10 * L + 4) * one + norms);
    EXPECT_EQ(sent("--precision bf16"), (10 * L + 4) * one / 2 + norms);
  }
}

// Calls by operation: those of a step, and of one forward pass of validation less.
TEST_F(TensorParallelBytes, CallsOfAStep) {
  const auto calls = [&](int64_t steps) {
    const auto got =
        report("11_tensor_parallel", fmt::format("--layers {} --tp 4 --sequence-parallel --batch 1 "
                                                 "--steps {}",
                                                 L, steps));
    const auto& of = got["comm"][0];
    const auto count = [&](const char* operation) { return of[operation]["calls"].get<int64_t>(); };
    return std::array{count("reduce_scatter"), count("all_gather"), count("all_reduce")};
  };
  const auto one = calls(1), two = calls(2);
  EXPECT_EQ(two[0] - one[0], 4 * L + 2);
  // Activations and their gradients; and of each norm the sums of chunks, for the gain and for the
  // bias.
  EXPECT_EQ(two[1] - one[1], 6 * L + 2 + 2 * (2 * L + 1));
  // Maximum, sum and target; and the norm of all gradients.
  EXPECT_EQ(two[2] - one[2], 3 + 1);
}

}  // namespace
}  // namespace ladder::test
