// The exchange alone, with choices made by hand: a rank that no token chooses, and rows that
// travel.
#include "chapters/22_expert_parallel/exchange.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/21_moe/moe.h"
#include "common/comm/run_ranks.h"
#include "common/model/config.h"

namespace ladder::test {
namespace {

/// Two ranks, a sequence of four tokens each, two of four experts a token. What a rank gets of
/// tokens that are 1, 2, ... and of experts that double them.
struct Seen {
  int64_t arrived = 0;            ///< tokens that have come, own ones too
  std::vector<float> joined;      ///< of own tokens
  std::vector<float> never_came;  ///< what the owner holds for the others
};

std::vector<Seen> run_choices(const std::vector<int32_t>& pair) {
  constexpr int64_t kRanks = 2, T = 4;
  GptConfig gpt = preset("moe-nano");
  gpt.layers = gpt.channels = gpt.hidden = 1;
  gpt.seq_len = T;
  gpt.experts = {.count = 4, .chosen = 2};
  std::vector<Seen> ranks(kRanks);
  run_threads(kRanks, [&](Comm& comm) {
    Arena arena;
    Ctx ctx;
    ctx.kernels = &ref_kernels();
    const ActivationPlan plan;
    const ExchangeShape shape(gpt, /*micro=*/1, kRanks, /*capacity=*/0, plan.dtype);
    const Routers routers(arena, gpt, /*batch=*/1, /*micro=*/1, plan, /*capacity=*/0);
    const ExpertLayers experts(arena, shape.own, plan);
    Exchange exchange(arena, comm, shape, plan);
    const Choices chosen = routers.acts(0).chosen;
    const Exchanged x = exchange.acts(0, chosen);
    const ExpertActs s = experts.acts(0, x.chosen);
    const Tensor inp = arena.alloc(Mem::Workspace, "inp", Dtype::F32, {1, T, 1});
    const Tensor out = arena.alloc(Mem::Workspace, "out", Dtype::F32, {1, T, 1});
    for (int64_t t = 0; t < T; ++t) {
      inp.data<float>()[t] = static_cast<float>(comm.rank() * T + t + 1);
      std::copy_n(pair.data(), 2, chosen.expert.data<int32_t>() + 2 * t);
    }
    std::fill_n(chosen.weight.data<float>(), 2 * T, 1.0f);
    exchange.choose(ctx, x);
    exchange.to_owners(ctx, x, x.inp, inp);
    dispatch_forward(ctx, s, x.inp, T);
    const int64_t rows = s.rows.offsets.data<int32_t>()[2];
    for (int64_t row = 0; row < rows; ++row)
      s.out.data<float>()[row] = 2 * s.inp.data<float>()[row];
    combine_forward(ctx, x.out, s);
    exchange.to_origins(ctx, x, out, x.out);

    Seen& seen = ranks[static_cast<size_t>(comm.rank())];
    for (int64_t t = 0; t < kRanks * T; ++t) {
      const bool came = x.arrived.peer.data<int32_t>()[t] != kElsewhere;
      seen.arrived += came ? 1 : 0;
      if (!came) seen.never_came.push_back(x.out.data<float>()[t]);
    }
    seen.joined.assign(out.data<float>(), out.data<float>() + T);
  });
  return ranks;
}

// Others hang here: a rank without tokens leaves out its part of a collective.
TEST(ExchangeTest, ARankThatNoTokenChoosesStillTakesPart) {
  const std::vector<Seen> ranks = run_choices({0, 1});
  EXPECT_EQ(ranks[0].arrived, 8);
  EXPECT_EQ(ranks[1].arrived, 0);
  EXPECT_EQ(ranks[0].joined, (std::vector<float>{4, 8, 12, 16}));
  EXPECT_EQ(ranks[1].joined, (std::vector<float>{20, 24, 28, 32}));
  for (const float x : ranks[1].never_came) EXPECT_TRUE(x == 0 && std::signbit(x)) << x;
}

TEST(ExchangeTest, ATokenGoesToBothOwners) {
  const std::vector<Seen> ranks = run_choices({1, 2});
  for (const Seen& seen : ranks) EXPECT_EQ(seen.arrived, 8);
  EXPECT_EQ(ranks[1].joined, (std::vector<float>{20, 24, 28, 32}));
}

}  // namespace
}  // namespace ladder::test
