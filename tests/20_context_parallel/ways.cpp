// The three ways of chapter 20 beside ordinary attention; and the tree of a ring beside a ring that
// merges what comes as it comes.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/20_context_parallel/context_parallel.h"
#include "common/comm/run_ranks.h"
#include "common/random.h"

namespace ladder::test {
namespace {

constexpr int64_t T = 512;

GptConfig model() {
  GptConfig gpt = preset("llama-nano");
  gpt.channels = 32;
  gpt.seq_len = T;
  return gpt;
}

/// Memory and kernels of one rank.
struct Bench {
  Arena arena;
  Ctx ctx;

  Bench() {
    ctx.kernels = &cpu_kernels();
    ctx.scratch =
        arena.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, ctx.kernels->scratch_bytes});
  }
  Tensor empty(Shape shape) { return arena.alloc(Mem::Activation, "empty", Dtype::F32, shape); }
  Tensor random(Shape shape, const char* key) {
    const Tensor x = empty(shape);
    const Random random(1, key);
    for (int64_t i = 0; i < x.size(); ++i)
      x.data<float>()[i] = static_cast<float>(4 * random.uniform(static_cast<uint64_t>(i)) - 2);
    return x;
  }
  /// Rows of some tokens of x (1,T,N), or back.
  Tensor own(const LocalTokens& tokens, const Tensor& x) {
    const Tensor part = empty({1, tokens.size(), x.dim(2)});
    for (const int i : {0, 1})
      copy_elements(rows_of(part, tokens.rows(i)), rows_of(x, tokens.tokens(i)));
    return part;
  }
  static void put(const LocalTokens& tokens, const Tensor& x, const Tensor& part) {
    for (const int i : {0, 1})
      copy_elements(rows_of(x, tokens.tokens(i)), rows_of(part, tokens.rows(i)));
  }
};

std::vector<uint32_t> bits(const Tensor& x) {
  std::vector<uint32_t> all;
  for (int64_t i = 0; i < x.size(); ++i) all.push_back(std::bit_cast<uint32_t>(x.data<float>()[i]));
  return all;
}

/// out (1,T,C) and dqkv (1,T,N).
struct Attended {
  std::vector<uint32_t> out, dqkv;
  bool operator==(const Attended&) const = default;
};

std::unique_ptr<SharedAttention> make(ContextWay way, Bench& bench, Comm& comm,
                                      const RunOptions& run, const ContextShape& shape) {
  if (way == ContextWay::Ulysses)
    return std::make_unique<UlyssesAttention>(bench.arena, comm, shape);
  if (way == ContextWay::Gather)
    return std::make_unique<GatherAttention>(bench.arena, bench.ctx, comm, shape);
  return std::make_unique<RingAttention>(bench.arena, bench.ctx, comm, run, shape);
}

class Ways : public ::testing::Test {
 protected:
  const GptConfig gpt = model();
  const int64_t N = gpt.qkv_rows(), C = gpt.channels;
  Bench bench;
  const Tensor qkv = bench.random({1, T, N}, "qkv"), dout = bench.random({1, T, C}, "dout");

  Attended alone() {
    const Tensor out = bench.empty({1, T, C}), lse = bench.empty({1, gpt.heads, T});
    const Tensor dqkv = bench.empty({1, T, N});
    bench.ctx.kernels->attention_forward(bench.ctx, out, lse, qkv);
    bench.ctx.kernels->attention_backward(bench.ctx, dqkv, dout, qkv, out, lse);
    return {bits(out), bits(dqkv)};
  }
  Attended by_ranks(ContextWay way, int cp, TokenOrder order = TokenOrder::Zigzag) {
    const Tensor out = bench.empty({1, T, C}), dqkv = bench.empty({1, T, N});
    run_threads(cp, [&](Comm& comm) {
      Bench own;
      const RunOptions run;
      const LocalTokens tokens{T, cp, comm.rank(), order};
      const auto attention = make(way, own, comm, run, {tokens, gpt, Dtype::F32});
      const AttnSaved saved{.qkv = own.own(tokens, qkv),
                            .att = own.empty({1, tokens.size(), C}),
                            .lse = own.empty({1, gpt.heads, tokens.size()}),
                            .angles = {}};
      const AttnGrads d{own.empty({1, tokens.size(), N}), own.own(tokens, dout)};
      attention->forward(own.ctx, saved);
      attention->backward(own.ctx, d, saved);
      Bench::put(tokens, out, saved.att);
      Bench::put(tokens, dqkv, d.dqkv);
    });
    return {bits(out), bits(dqkv)};
  }

  /// What is left out of the ring: softmaxes that wait. Each is merged as it comes.
  std::vector<uint32_t> naive(int64_t cp) {
    const Tensor out = bench.empty({1, T, C});
    const Kernels& k = *bench.ctx.kernels;
    const int64_t r = gpt.heads / gpt.groups(), HS = gpt.head_size();
    const auto taken = [&](const Tensor& from, int64_t column, int64_t count) {
      const Tensor part = bench.empty({1, from.dim(1), gpt.groups() * count});
      k.copy_columns(bench.ctx, part.view({from.dim(1), gpt.groups(), count}), 0,
                     from.view({from.dim(1), gpt.groups(), (r + 2) * HS}), column, count);
      return part;
    };
    for (int64_t rank = 0; rank < cp; ++rank) {
      const LocalTokens tokens{T, cp, rank, TokenOrder::Zigzag};
      const Shape statistic{1, gpt.heads, tokens.size()};
      const Tensor own = bench.own(tokens, qkv), q = taken(own, 0, r * HS);
      std::vector<PartialSoftmax> parts;
      for (int64_t step = 0; step < cp; ++step)
        for (const int64_t i : tokens.runs_of((rank - step + cp) % cp)) {
          const Range run = tokens.run(i);
          const PartialSoftmax part{bench.empty(q.shape), bench.empty(statistic),
                                    bench.empty(statistic)};
          k.attention_piece_forward(bench.ctx, part.o, part.m, part.l, q,
                                    taken(rows_of(qkv, run), r * HS, 2 * HS),
                                    tokens.place(run.begin));
          parts.push_back(part);
        }
      const PartialSoftmax& sum = parts[0];
      for (size_t i = 1; i < parts.size(); ++i)
        k.attention_merge(bench.ctx, sum.o, sum.m, sum.l, parts[i].o, parts[i].m, parts[i].l);
      const Tensor att = bench.empty(q.shape), lse = bench.empty(statistic);
      k.attention_finish(bench.ctx, att, lse, sum.o, sum.m, sum.l);
      Bench::put(tokens, out, att);
    }
    return bits(out);
  }
};

TEST_F(Ways, HaveTheBitsOfOneRank) {
  const Attended want = alone();
  for (const ContextWay way : {ContextWay::Gather, ContextWay::Ulysses, ContextWay::Ring})
    for (const int cp : {2, 4, 8}) {
      if (way == ContextWay::Ulysses && cp == 8) continue;  // 4 heads of keys
      EXPECT_EQ(by_ranks(way, cp), want) << to_string(way) << cp;
    }
}

// dk and dv are sums over queries, whose leaves fold early tokens with late ones. Sums over keys do
// not know who has which queries.
TEST_F(Ways, InContiguousOrderTheOutputHasTheSameBits) {
  const Attended want = alone();
  const Attended got = by_ranks(ContextWay::Ring, 4, TokenOrder::Contiguous);
  EXPECT_EQ(got.out, want.out);
  EXPECT_NE(got.dqkv, want.dqkv);
}

// Negative control: the ring that most programs have.
TEST_F(Ways, MergedInTheOrderOfArrivalHasOtherBits) {
  std::set<std::vector<uint32_t>> found;
  for (const int64_t cp : {1, 2, 4, 8}) found.insert(naive(cp));
  EXPECT_GE(found.size(), 3U);
  EXPECT_EQ(naive(1), alone().out);
}

// Every order of 8 leaves that a ring has, and each permutation of 4.
TEST(ArrivalTreeTest, IsTheSameTreeInAnyOrder) {
  const auto tree_of = [](const std::vector<int64_t>& order, int64_t buffers) {
    ArrivalTree tree(std::ssize(order), buffers);
    std::vector<std::string> sums(static_cast<size_t>(buffers));
    for (const int64_t i : order) {
      const size_t at = tree.take();
      sums[at] = std::to_string(i);
      tree.add(i, at,
               [&](size_t to, size_t from) { sums[to] = "(" + sums[to] + sums[from] + ")"; });
    }
    return sums[tree.total()];
  };
  std::vector<int64_t> order{0, 1, 2, 3};
  do EXPECT_EQ(tree_of(order, 4), "((01)(23))");
  while (std::ranges::next_permutation(order).found);
  for (int64_t rank = 0; rank < 8; ++rank) {
    std::vector<int64_t> ring(8);
    for (int64_t step = 0; step < 8; ++step) ring[static_cast<size_t>(step)] = (rank + step) % 8;
    EXPECT_EQ(tree_of(ring, 8 / 2 + 1), "(((01)(23))((45)(67)))");
  }
  EXPECT_THROW(tree_of({1, 2, 5, 6, 0, 3, 4, 7}, 3), CheckError);
}

/// As many buffers as ring.h has; one fewer is too few for some rank.
TEST(ArrivalTreeTest, BuffersOfARing) {
  for (const int64_t cp : {2, 4, 8}) {
    const auto fits = [&](int64_t buffers, int64_t rank) {
      const LocalTokens own{T, cp, rank, TokenOrder::Zigzag};
      ArrivalTree tree(2 * cp, buffers);
      for (int64_t step = 0; step < cp; ++step)
        for (const int64_t i : own.runs_of((rank - step + cp) % cp))
          tree.add(i, tree.take(), [](size_t, size_t) {});
    };
    for (int64_t rank = 0; rank < cp; ++rank) EXPECT_NO_THROW(fits(cp + 1, rank)) << cp;
    EXPECT_THROW(for (int64_t rank = 0; rank < cp; ++rank) fits(cp, rank), CheckError) << cp;
  }
}

}  // namespace
}  // namespace ladder::test
