// The exchange alone, with choices made by hand: a rank that no token chooses, and rows that
// travel.
#include "chapters/22_expert_parallel/exchange.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/21_moe/moe.h"
#include "chapters/22_expert_parallel/exchange_memory.h"
#include "common/comm/run_ranks.h"
#include "kernels/kernels.h"

namespace ladder::test {
namespace {

/// The smallest exchange: two ranks with a sequence of four tokens and two of four experts each. A
/// token takes two experts, and all vectors have one element. This is what one of the ranks does.
/// Its experts write their outputs into s.out, between the constructor and join().
struct SmallExchange {
  static constexpr int64_t kRanks = 2, T = 4, E = 4, k = 2;

  Arena arena;
  Ctx ctx;
  const ActivationPlan plan;
  const GptConfig gpt = config();
  const ExchangeShape shape{gpt, /*micro=*/1, kRanks, /*capacity=*/0, plan.dtype};
  const Routers routers{arena, gpt, /*batch=*/1, /*micro=*/1, plan, /*capacity=*/0};
  const ExpertLayers experts{arena, shape.own, plan};
  Exchange exchange;
  const Exchanged x;
  const ExpertActs s;

  /// Sends own tokens, which are `first`, `first` + 1, ..., to the owners of their experts.
  /// @param chosen (T,k): the experts of own tokens
  SmallExchange(Comm& comm, std::span<const int32_t> chosen, float first)
      : exchange(arena, comm, shape, plan),
        x(exchange.acts(0, routers.acts(0).chosen)),
        s(experts.acts(0, x.chosen)) {
    ctx.kernels = &ref_kernels();
    const Tensor inp = arena.alloc(Mem::Workspace, "inp", Dtype::F32, {1, T, 1});
    std::iota(inp.data<float>(), inp.data<float>() + T, first);
    std::ranges::copy(chosen, x.own.expert.data<int32_t>());
    std::fill_n(x.own.weight.data<float>(), T * k, 1.0f);
    exchange.exchange_routing(ctx, x);
    exchange.to_owners(ctx, x, x.inp, inp);
    permute_forward(ctx, s, x.inp, T);
  }
  /// Adds outputs by token into x.out, and returns the sums of own tokens (1,T,1).
  Tensor join() {
    unpermute_forward(ctx, x.out, s);
    const Tensor out = arena.alloc(Mem::Workspace, "out", Dtype::F32, {1, T, 1});
    exchange.to_origins(ctx, x, out, x.out);
    return out;
  }
  /// Whether token t of all ranks has come here.
  bool came(int64_t t) const { return x.arrived.peer.data<int32_t>()[t] != kElsewhere; }

 private:
  static GptConfig config() {
    GptConfig small = preset("moe-nano");
    small.layers = small.channels = small.hidden = 1;
    small.seq_len = T;
    small.experts = {.count = E, .chosen = k};
    return small;
  }
};

/// What a rank gets of tokens that are 1, 2, ... and of experts that double them.
struct Seen {
  int64_t arrived = 0;            ///< tokens that have come, own ones too
  std::vector<float> joined;      ///< of own tokens
  std::vector<float> never_came;  ///< what the owner holds for the others
};

/// Every token chooses this pair of experts.
std::vector<Seen> run_choices(int32_t a, int32_t b) {
  constexpr int64_t T = SmallExchange::T;
  std::vector<Seen> ranks(SmallExchange::kRanks);
  run_threads(SmallExchange::kRanks, [&](Comm& comm) {
    const std::vector<int32_t> chosen{a, b, a, b, a, b, a, b};
    SmallExchange own(comm, chosen, static_cast<float>(comm.rank() * T + 1));
    const int64_t rows = own.s.rows.offsets.data<int32_t>()[2];
    for (int64_t row = 0; row < rows; ++row)
      own.s.out.data<float>()[row] = 2 * own.s.inp.data<float>()[row];
    const Tensor out = own.join();

    Seen& seen = ranks[static_cast<size_t>(comm.rank())];
    for (int64_t t = 0; t < SmallExchange::kRanks * T; ++t) {
      seen.arrived += own.came(t) ? 1 : 0;
      if (!own.came(t)) seen.never_came.push_back(own.x.out.data<float>()[t]);
    }
    seen.joined.assign(out.data<float>(), out.data<float>() + T);
  });
  return ranks;
}

// Others hang here: a rank without tokens leaves out its part of a collective.
TEST(ExchangeTest, ARankThatNoTokenChoosesStillTakesPart) {
  const std::vector<Seen> ranks = run_choices(0, 1);
  EXPECT_EQ(ranks[0].arrived, 8);
  EXPECT_EQ(ranks[1].arrived, 0);
  EXPECT_EQ(ranks[0].joined, (std::vector<float>{4, 8, 12, 16}));
  EXPECT_EQ(ranks[1].joined, (std::vector<float>{20, 24, 28, 32}));
  for (const float x : ranks[1].never_came) EXPECT_TRUE(x == 0 && std::signbit(x)) << x;
}

TEST(ExchangeTest, ATokenGoesToBothOwners) {
  const std::vector<Seen> ranks = run_choices(1, 2);
  for (const Seen& seen : ranks) EXPECT_EQ(seen.arrived, 8);
  EXPECT_EQ(ranks[1].joined, (std::vector<float>{20, 24, 28, 32}));
}

}  // namespace
}  // namespace ladder::test
