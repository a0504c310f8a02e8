// Models with experts: what a rank has of them, and what it sends.
#include <gtest/gtest.h>

#include "chapters/23_planner/flops.h"
#include "chapters/23_planner/search.h"
#include "common/model/config.h"
#include "common/run/report.h"

namespace ladder::planner {
namespace {

Job mixtral() {
  Job job{.gpt = preset("mixtral-8x7b"), .gpus = 64, .batch = 64, .precision = {{.name = "bf16"}}};
  job.gpt.seq_len = 4096;
  return job;
}

// 46.7 B parameters, of which a token takes 12.9 B: embedding, norms and router are no product of
// blocks and head.
TEST(Experts, FlopsAreOfTheChosenOnes) {
  const GptConfig gpt = mixtral().gpt;
  EXPECT_EQ(parameters(gpt), 46702792704);
  const auto [blocks, head, attention] = forward_flops(gpt);
  const double norms = 65.0 * 4096, embedding = 32000.0 * 4096;
  EXPECT_EQ((blocks + head) / 2, 12879925248.0 - norms - embedding);
}

TEST(Experts, ARankHasItsPart) {
  const Job of = mixtral();
  const int64_t all = parameters(of.gpt), L = 32, C = 4096, F = 14336;
  for (const int64_t ep : {1, 2, 4, 8}) {
    PlanLayout layout{.dp = 64, .ep = ep, .zero = 1};
    ASSERT_EQ(why_not(of, layout), "");
    SizeTable sizes;
    const int64_t experts = 8 * 3 * C * F;
    // The layout pads sections for 64 shards: at most 64 x 64 elements each.
    const int64_t got = sizes.of(of, layout, 0).all, want = all - L * (experts - experts / ep);
    EXPECT_GE(got, want);
    EXPECT_LT(got, want + 34 * 64 * 64);
    EXPECT_EQ(usual_bytes(of, layout, 0, sizes)[Mem::Param], 2 * got);
    // States are shared by all replicas, however experts lie.
    EXPECT_EQ(sizes.of(of, layout, 0).own, sizes.of(of, {.dp = 64, .ep = 1}, 0).own);
  }
}

// 2 k n C (ep - 1) / ep elements a layer forward, and as many backward.
TEST(Experts, TokensGoThereAndBack) {
  const Job of = mixtral();
  Device device = read_device(LADDER_DEVICES, "h100");
  device.node_latency = 0;
  const PlanLayout layout{.dp = 64, .ep = 8};
  const StageSeconds t = StageModel(of, device, layout).of(0);
  const double bytes = 2.0 * 2 * 4096 * 4096 * 7 / 8 * 2;
  EXPECT_NEAR(t.forward[Term::Experts] / (32 * bytes / (450e9 * device.links)), 1, 1e-9);
  EXPECT_EQ(t.forward[Term::Experts], t.input[Term::Experts]);
  EXPECT_EQ(t.weight[Term::Experts], 0);
  EXPECT_EQ(StageModel(of, device, {.dp = 64}).of(0).forward[Term::Experts], 0);
}

}  // namespace
}  // namespace ladder::planner
