// The gradient of a bias, and that its order of sums is the tree's of kernels/tree.h.
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

TEST_F(Bias, TheChunksOfASequenceGiveTheSameBits) {
  const int64_t T = 76, N = 24;
  const Tensor dout = host.random({1, T, N}), zero = host.filled({N}, 0);
  const Tensor tokens = dout.view({T, N}), sums = up(host.random({1, kTokenChunks, N}));
  Ctx alone = ctx;
  alone.token_chunks = 1;
  for (int64_t c = 0; c < kTokenChunks; ++c) {
    const Range t = leaf(c, kTokenChunks, T);
    k.bias_backward(alone, sums.view({kTokenChunks, N}).slice(c, 1).view({N}),
                    up(tokens.slice(t.begin, t.size()).view({1, t.size(), N})), Into::Write);
  }
  const Tensor joined = up(zero);
  k.bias_backward(ctx, joined, sums, Into::Write);
  EXPECT_TRUE(same_bits(down(joined), down(bias_backward(dout, zero, Into::Write))));
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
