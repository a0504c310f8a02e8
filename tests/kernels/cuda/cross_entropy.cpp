// Softmax cross-entropy: padding, ignored targets, in place, and what is not finite.
#include "tests/kernels/cuda/vs_ref.h"

namespace ladder::test {
namespace {

class CudaCrossEntropy : public CudaVsRef {
 protected:
  /// Losses of logits (B,T,V), without gradients.
  Tensor losses_of(const Tensor& logits, const Tensor& targets, int64_t vocab) {
    const Tensor losses = out(Dtype::F32, {logits.dim(0)});
    dev::cross_entropy(dut().ctx, losses, Tensor{}, up(logits), dut().share(targets), vocab, 1);
    return down(losses);
  }
};

struct Batch {
  int64_t B, T, V;
};
constexpr Batch kBatches[] = {{1, 1, 1}, {3, 5, 7}, {2, 9, 40}, {4, 3, 257}, {1, 2, 50304}};

TEST_F(CudaCrossEntropy, LossesAndGradients) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, V] : kBatches)
      for (const int64_t padding : {0, 3}) {
        if (padding >= V) continue;
        const int64_t vocab = V - padding;
        const Tensor logits = host.random(dtype, {B, T, V}, -5, 5);
        const Tensor targets = host.tokens({B, T}, vocab);
        targets.data<int32_t>()[0] = B * T > 1 ? kIgnore : 0;
        const Tensor l = exact.empty({B}), d = exact.empty(logits.shape);
        const Tensor losses = out(Dtype::F32, {B}), dlogits = up(logits);
        const float scale = 0.37F;
        dev::cross_entropy(dut().ctx, losses, dlogits, dlogits, dut().share(targets), vocab, scale);
        ref.cross_entropy(exact.ctx(), l, d, wide(logits), targets, vocab, scale);
        // x - m is at most 10 and rounded once, as is each of the at most 2 + 10 rescalings of a
        // sum: ten roundings for the exponential, a factor of at most 2 for the others.
        const double unit = kRound * (sum_roundings(V, 32) + 40);
        expect_near("losses", losses, l, [&](int64_t b) {
          return static_cast<double>(T) * unit + kRound * static_cast<double>(T) * at(l, b);
        });
        expect_near("dlogits", dlogits, d, [&](int64_t i) {
          const bool target = targets.data<int32_t>()[i / V] == i % V;
          const double p = at(d, i) / scale + (target ? 1 : 0);
          return scale * (2 * unit * p + (target ? 2 * kRound : 0));
        });
        EXPECT_TRUE(same_bits(losses_of(logits, targets, vocab), down(losses)));
      }
}

TEST_F(CudaCrossEntropy, NaNReachesTheLossOfItsSequence) {
  for (const int64_t place : {0, 20, 39})
    for (const float bad : {NAN, INFINITY}) {
      const Tensor logits = host.random({2, 1, 40}), targets = host.tokens({2, 1}, 40);
      set(logits, 40 + place, bad);
      const Tensor losses = losses_of(logits, targets, 40);
      EXPECT_FALSE(std::isnan(at(losses, 0)));
      EXPECT_TRUE(std::isnan(at(losses, 1))) << place << " " << bad;
    }
}

TEST_F(CudaCrossEntropy, MinusInfinityIsNoProbability) {
  const Tensor logits = host.filled({1, 1, 40}, -INFINITY), targets = host.tokens({1, 1}, 1);
  set(logits, 0, 3);
  set(logits, 30, 3);
  EXPECT_NEAR(at(losses_of(logits, targets, 40), 0), std::log(2.0), 2 * kRound);
}

TEST_F(CudaCrossEntropy, LargeLogitsDoNotOverflow) {
  const Tensor logits = host.filled({1, 1, 8}, -3e38), targets = host.tokens({1, 1}, 1);
  set(logits, 0, 3e38);
  EXPECT_EQ(at(losses_of(logits, targets, 8), 0), 0);
}

TEST_F(CudaCrossEntropy, AnUnknownTargetIsNaN) {
  const Tensor logits = host.random({3, 1, 8});
  for (const int32_t bad : {-2, 7, 1000}) {
    const Tensor targets = host.tokens({3, 1}, 7);
    targets.data<int32_t>()[1] = bad;
    const Tensor losses = losses_of(logits, targets, 7);
    for (int64_t b = 0; b < 3; ++b) EXPECT_EQ(std::isnan(at(losses, b)), b == 1) << bad;
  }
}

}  // namespace
}  // namespace ladder::test
