// The gradient of a bias. Its order of sums is that of kernels/token_leaves.h, as for a norm.
#include <array>

#include "kernels/token_leaves.h"
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

class Bias : public VsRef {
 protected:
  Tensor bias_backward(const Tensor& dout, const Tensor& before, Into into) {
    const Tensor db = up(before);
    k.bias_backward(ctx, db, up(dout), into);
    return db;
  }
};

struct Batch {
  int64_t B, T, N;
};
constexpr Batch kBatches[] = {{1, 1, 1},  {3, 5, 7},    {5, 1, 33},   {40, 1, 9},
                              {2, 64, 8}, {2, 600, 13}, {6, 17, 264}, {150, 3, 5}};

TEST_F(Bias, SumsTokens) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, N] : kBatches)
      for (const Into into : {Into::Write, Into::Add}) {
        const Tensor dout = host.random(dtype, {B, T, N}), before = host.random({N});
        const Tensor want = wide(before), terms = size(before);
        ref.bias_backward(exact.ctx(), want, wide(dout), into);
        ref.bias_backward(exact.ctx(), terms, size(dout), into);
        const double roundings = interleaved_roundings(T, kLeaves) + interleaved_roundings(B, B);
        expect_near("db", bias_backward(dout, before, into), want,
                    [&](int64_t i) { return kRound * roundings * at(terms, i); });
      }
}

TEST_F(Bias, TwoHalvesOfABatchGiveTheSameBits) {
  for (const int64_t B : {4, 256}) {  // of many sequences, the leaves are joined in two launches
    const Tensor dout = host.random({B, 37, 24}), zero = host.filled({24}, 0);
    const Tensor whole = bias_backward(dout, zero, Into::Write);
    const Tensor halves = bias_backward(dout.slice(0, B / 2), zero, Into::Write);
    k.bias_backward(ctx, halves, up(dout.slice(B / 2, B / 2)), Into::Add);
    EXPECT_TRUE(same_bits(down(halves), down(whole)));
  }
}

// Sequence parallelism: a rank's tokens are neighbors. It sums each of its chunks by itself, and
// the sums of all chunks are joined as if they were tokens.
TEST_F(Bias, SumsOfChunksAreJoinedByAnybody) {
  const int64_t N = 24;
  for (const Dtype dtype : kReals)
    for (const int64_t T : {8, 24, 76, 1000}) {
      const Tensor dout = spread(host.random(dtype, {T, N})), inp = host.random(dtype, {T, N});
      const Tensor mean = host.random({T}), rstd = host.random({T}, 0.5, 2);
      // The gradients of a bias, and of the weight and the bias of a norm, over tokens `t`.
      const auto sum = [&](int chunks, const Range& t, const std::array<Tensor, 3>& sums) {
        Ctx own = ctx;
        own.token_chunks = chunks;
        const auto tokens = [&](const Tensor& x) { return up(x.slice(t.begin, t.size())); };
        const Shape rows{1, t.size(), N}, row{1, t.size()};
        const Tensor d = tokens(dout).view(rows);
        k.bias_backward(own, sums[0], d, Into::Write);
        k.norm_backward_weight(own, sums[1], sums[2], d, tokens(inp).view(rows),
                               tokens(mean).view(row), tokens(rstd).view(row), Into::Write);
      };
      const auto vector = [&] { return out(Dtype::F32, {N}); };
      const std::array<Tensor, 3> whole{vector(), vector(), vector()};
      sum(kTokenChunks, {0, T}, whole);
      for (const bool broken : {false, true}) {
        if (broken && T < 64) continue;  // too few terms
        std::array<Tensor, 3> chunks;
        for (Tensor& x : chunks) x = out(Dtype::F32, {kTokenChunks, N});
        for (int64_t c = 0; c < kTokenChunks; ++c) {
          const auto row = [&](const Tensor& x) { return x.slice(c, 1).view({N}); };
          sum(1, leaf(broken ? (c + 1) % kTokenChunks : c, kTokenChunks, T),
              {row(chunks[0]), row(chunks[1]), row(chunks[2])});
        }
        for (size_t i = 0; i < chunks.size(); ++i) {
          const Tensor joined = vector();
          k.bias_backward(ctx, joined, chunks[i].view({1, kTokenChunks, N}), Into::Write);
          EXPECT_EQ(bool(same_bits(down(joined), down(whole[i]))), !broken) << T << " sum " << i;
        }
      }
      dut().clear();
    }
}

TEST_F(Bias, OfNoSequenceIsZero) {
  const Tensor none = host.zeros(Dtype::F32, {0, 4, 3}), before = host.filled({3}, 7);
  const Tensor written = down(bias_backward(none, before, Into::Write));
  const Tensor added = down(bias_backward(none, before, Into::Add));
  for (int64_t n = 0; n < 3; ++n) {
    EXPECT_EQ(at(written, n), 0);
    EXPECT_EQ(at(added, n), 7);
  }
}

}  // namespace
}  // namespace ladder::test
