// Dispatch alone, with choices made by hand: a rank that no token chooses, and rows that travel.
#include "chapters/22_expert_parallel/dispatch.h"

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
    const OwnedShape shape(gpt, /*micro=*/1, kRanks, /*capacity=*/0, plan.dtype);
    const OwnedExperts experts(arena, shape, gpt.layers, /*batch=*/kRanks, plan, comm);
    Dispatch dispatch(arena, comm, shape);
    const OwnedActs a = experts.acts(0);
    const OwnedScratch scratch = experts.scratch();
    const Tensor inp = arena.alloc(Mem::Workspace, "inp", Dtype::F32, {1, T, 1});
    const Tensor out = arena.alloc(Mem::Workspace, "out", Dtype::F32, {1, T, 1});
    for (int64_t t = 0; t < T; ++t) {
      inp.data<float>()[t] = static_cast<float>(comm.rank() * T + t + 1);
      std::copy_n(pair.data(), 2, a.tokens.expert.data<int32_t>() + 2 * t);
    }
    std::fill_n(a.tokens.weight.data<float>(), 2 * T, 1.0f);
    dispatch.choose(ctx, a, /*capacity=*/0);
    dispatch.to_owners(ctx, a, a.inp, inp);
    dispatch_forward(ctx, a.experts, scratch.experts, a.inp, T);
    const int64_t rows = a.experts.rows.offsets.data<int32_t>()[2];
    for (int64_t row = 0; row < rows; ++row)
      a.experts.out.data<float>()[row] = 2 * scratch.experts.inp.data<float>()[row];
    combine_forward(ctx, scratch.out, a.experts);
    dispatch.to_origins(ctx, a, out, scratch.out);

    Seen& seen = ranks[static_cast<size_t>(comm.rank())];
    for (int64_t t = 0; t < kRanks * T; ++t) {
      const bool came = a.arrived.peer.data<int32_t>()[t] != kElsewhere;
      seen.arrived += came ? 1 : 0;
      if (!came) seen.never_came.push_back(scratch.out.data<float>()[t]);
    }
    seen.joined.assign(out.data<float>(), out.data<float>() + T);
  });
  return ranks;
}

// Others hang here: a rank without tokens leaves out its part of a collective.
TEST(DispatchTest, ARankThatNoTokenChoosesStillTakesPart) {
  const std::vector<Seen> ranks = run_choices({0, 1});
  EXPECT_EQ(ranks[0].arrived, 8);
  EXPECT_EQ(ranks[1].arrived, 0);
  EXPECT_EQ(ranks[0].joined, (std::vector<float>{4, 8, 12, 16}));
  EXPECT_EQ(ranks[1].joined, (std::vector<float>{20, 24, 28, 32}));
  for (const float x : ranks[1].never_came) EXPECT_TRUE(x == 0 && std::signbit(x)) << x;
}

TEST(DispatchTest, ATokenGoesToBothOwners) {
  const std::vector<Seen> ranks = run_choices({1, 2});
  for (const Seen& seen : ranks) EXPECT_EQ(seen.arrived, 8);
  EXPECT_EQ(ranks[1].joined, (std::vector<float>{20, 24, 28, 32}));
}

}  // namespace
}  // namespace ladder::test
