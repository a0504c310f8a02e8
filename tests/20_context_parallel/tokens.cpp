// Who has which tokens, targets and positions in chapter 20.
#include <algorithm>
#include <numeric>

#include "tests/20_context_parallel/bench.h"

namespace ladder::test {
namespace {

TEST(OwnTokensTest, EveryTokenHasOneOwner) {
  for (const TokenOrder order : {TokenOrder::Zigzag, TokenOrder::Contiguous})
    for (const int64_t cp : {1, 2, 4, 8}) {
      std::vector<int> owners(T);
      for (int64_t rank = 0; rank < cp; ++rank) {
        const LocalTokens own{T, cp, rank, order};
        EXPECT_EQ(own.rows(0).size() + own.rows(1).size(), own.size());
        for (const int i : {0, 1})
          for (int64_t t = own.tokens(i).begin; t < own.tokens(i).end; ++t)
            ++owners[static_cast<size_t>(t)];
      }
      EXPECT_EQ(owners, std::vector<int>(T, 1)) << cp;
    }
  const LocalTokens second{64, 4, 1, TokenOrder::Zigzag};
  EXPECT_EQ(second.tokens(0), (Range{8, 16}));
  EXPECT_EQ(second.tokens(1), (Range{48, 56}));
}

/// Calls test(parallel, own, bench) on each of four ranks.
template <class Test>
void on_ranks(Test&& test) {
  const GptConfig gpt = model();
  run_threads(4, [&](Comm& comm) {
    Bench bench;
    bench.ctx.token_chunks = kTokenChunks / 4;
    const RunOptions run;
    const LocalTokens own{T, 4, comm.rank(), TokenOrder::Zigzag};
    ContextParallel parallel(bench.arena, bench.ctx, comm, run, ContextWay::Gather,
                             {own, gpt, Dtype::F32}, /*micro=*/1);
    test(parallel, own, bench);
  });
}

// Token t of the sequence is t here, so its target is t + 1. A rank that shifted its own tokens
// would be wrong at the end of each run of tokens (transformers, pull request 36607).
TEST(ContextParallelTest, TargetsAreShiftedBeforeRanksTakeTheirs) {
  on_ranks([](ContextParallel& parallel, const LocalTokens& own, Bench& bench) {
    std::iota(parallel.whole().tokens.data<int32_t>(), parallel.whole().tokens.data<int32_t>() + T,
              0);
    std::iota(parallel.whole().targets.data<int32_t>(),
              parallel.whole().targets.data<int32_t>() + T, 1);
    const Batch part = alloc_batch(bench.arena, 1, own.size());
    parallel.take(part);
    int64_t wrong = 0;
    for (int64_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(part.targets.data<int32_t>()[i], part.tokens.data<int32_t>()[i] + 1);
      const bool last = i + 1 == own.size();
      wrong += last || part.tokens.data<int32_t>()[i + 1] != part.targets.data<int32_t>()[i];
    }
    // Rank 3 has runs 3 and 4, which are neighbors.
    EXPECT_EQ(wrong, own.rank == 3 ? 1 : 2);
  });
}

TEST(ContextParallelTest, PositionsAreThoseOfTheWholeSequence) {
  on_ranks([](ContextParallel& parallel, const LocalTokens& own, Bench& bench) {
    const Tensor wte = bench.random({8, 32}, "wte"), wpe = bench.random({T, 32}, "wpe");
    const Tensor tokens = bench.arena.alloc(Mem::Activation, "tokens", Dtype::I32, {1, T});
    for (int64_t t = 0; t < T; ++t) tokens.data<int32_t>()[t] = static_cast<int32_t>(t * 5 % 8);
    const Tensor want = bench.empty({1, T, 32}), got = bench.empty({1, own.size(), 32});
    embed_forward(bench.ctx, want, tokens, {wte, wpe});
    copy_elements(parallel.whole().tokens, tokens);
    const Batch part = alloc_batch(bench.arena, 1, own.size());
    parallel.take(part);
    parallel.embed_forward(bench.ctx, got, part.tokens, {wte, wpe});
    EXPECT_EQ(bits(got), bits(bench.own(own, want)));
    // Negative control: not offset.
    embed_forward(bench.ctx, got, part.tokens, {wte, wpe});
    EXPECT_NE(bits(got), bits(bench.own(own, want)));
  });
}

// The gradient of a position is added to that of ranks which do not have it: -0.
TEST(ContextParallelTest, PositionsOfOthersHaveNoGradient) {
  on_ranks([](ContextParallel& parallel, const LocalTokens& own, Bench& bench) {
    const Tensor dout = bench.random({1, own.size(), 32}, "dout");
    const Tensor dwte = bench.empty({8, 32}), dwpe = bench.empty({T + 64, 32});
    const Tensor tokens = bench.arena.zeros(Mem::Activation, "tokens", Dtype::I32, {1, own.size()});
    parallel.embed_backward_weight(bench.ctx, {dwte, dwpe}, dout, tokens, Into::Write);
    std::vector<uint32_t> want(static_cast<size_t>(dwpe.size()), std::bit_cast<uint32_t>(-0.0F));
    const std::vector<uint32_t> own_bits = bits(dout);
    for (const int i : {0, 1})
      std::copy_n(own_bits.begin() + own.rows(i).begin * 32, own.rows(i).size() * 32,
                  want.begin() + own.tokens(i).begin * 32);
    EXPECT_EQ(bits(dwpe), want);
  });
}

}  // namespace
}  // namespace ladder::test
