// Softmax cross-entropy: padding, ignored targets, in place, and what is not finite.
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

class CrossEntropy : public VsRef {
 protected:
  /// Losses of logits (B,T,V), without gradients.
  Tensor losses_of(const Tensor& logits, const Tensor& targets, int64_t vocab) {
    const Tensor losses = out(Dtype::F32, {logits.dim(0)});
    k.cross_entropy(ctx, losses, Tensor{}, up(logits), share(targets), vocab, 1);
    return down(losses);
  }

  /// The relative error of a sum of exponentials, for logits between -5 and 5. x - m is at most 10
  /// and rounded twice, as is each of the at most 2 + 10 rescalings of a sum: twenty roundings for
  /// an exponential and four for exp2_quick, a factor of at most 2 for the others.
  static double unit(int64_t V) { return kRound * (interleaved_roundings(V, 16) + 2 * 24 + 12); }

  /// Against `l` and `d`, those of ref. Where a rank has part of the vocabulary, d has its columns.
  static void expect_loss(const Tensor& losses, const Tensor& dlogits, const Tensor& l,
                          const Tensor& d, const Tensor& targets) {
    const int64_t V = d.dim(2);
    const auto T = static_cast<double>(d.dim(1));
    const double error = unit(V);
    expect_near("losses", losses, l, [&](int64_t b) { return T * error + kRound * T * at(l, b); });
    expect_near("dlogits", dlogits, d, [&](int64_t i) {
      const bool target = targets.data<int32_t>()[i / V] == i % V;
      const double p = at(d, i) / kScale + (target ? 1 : 0);
      return kScale * (2 * error * p + (target ? 2 * kRound : 0));
    });
  }

  static constexpr float kScale = 0.37F;
};

struct Batch {
  int64_t B, T, V;
};
constexpr Batch kBatches[] = {{1, 1, 1}, {3, 5, 7}, {2, 9, 40}, {4, 3, 257}, {1, 2, 50304}};

TEST_F(CrossEntropy, LossesAndGradients) {
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
        k.cross_entropy(ctx, losses, dlogits, dlogits, share(targets), vocab, kScale);
        ref.cross_entropy(exact.ctx(), l, d, wide(logits), targets, vocab, kScale);
        expect_loss(losses, dlogits, l, d, targets);
        EXPECT_TRUE(same_bits(losses_of(logits, targets, vocab), down(losses)));
      }
}

TEST_F(CrossEntropy, NaNReachesTheLossOfItsSequence) {
  for (const int64_t place : {0, 20, 39})
    for (const float bad : {NAN, INFINITY}) {
      const Tensor logits = host.random({2, 1, 40}), targets = host.tokens({2, 1}, 40);
      set(logits, 40 + place, bad);
      const Tensor losses = losses_of(logits, targets, 40);
      EXPECT_FALSE(std::isnan(at(losses, 0)));
      EXPECT_TRUE(std::isnan(at(losses, 1))) << place << " " << bad;
    }
}

TEST_F(CrossEntropy, MinusInfinityIsNoProbability) {
  const Tensor logits = host.filled({1, 1, 40}, -INFINITY), targets = host.tokens({1, 1}, 1);
  set(logits, 0, 3);
  set(logits, 30, 3);
  EXPECT_NEAR(at(losses_of(logits, targets, 40), 0), std::log(2.0), 2 * kRound);
}

TEST_F(CrossEntropy, LargeLogitsDoNotOverflow) {
  const Tensor logits = host.filled({1, 1, 8}, -3e38), targets = host.tokens({1, 1}, 1);
  set(logits, 0, 3e38);
  EXPECT_EQ(at(losses_of(logits, targets, 8), 0), 0);
}

using Softmax = CrossEntropy;

/// Each of the three steps gets what `ref` computes in the steps before, over all ranks.
TEST_F(Softmax, StepsOfAVocabularyCutOverRanks) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, V] : {Batch{3, 5, 8}, {2, 9, 40}, {4, 3, 264}, {1, 2, 4096}})
      for (const int64_t ranks : {1, 2, 4}) {
        const int64_t vocab = V - 3, own = V / ranks;  // of 8 columns, rank 3 of 4 has padding only
        const Tensor logits = host.random(dtype, {B, T, V}, -5, 5);
        const Tensor targets = host.tokens({B, T}, vocab);
        targets.data<int32_t>()[0] = kIgnore;
        const Tensor l = exact.empty({B}), d = exact.empty(logits.shape);
        const Tensor m = host.empty({B, T}), s = host.empty({B, T}), x = host.empty({B, T});
        ref.cross_entropy(exact.ctx(), l, d, wide(logits), targets, vocab, kScale);
        ref.softmax_max(host.ctx(), m, logits, vocab);
        ref.softmax_sum(host.ctx(), s, x, logits, m, targets, vocab);
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const VocabularyPart p = part_of(host, logits, targets, vocab, rank * own, own);
          const VocabularyPart of_d = part_of(exact, d, targets, vocab, rank * own, own);
          const Tensor inp = up(p.logits), to = share(p.targets);
          const Tensor max = out(Dtype::F32, {B, T}), max_want = host.empty({B, T});
          k.softmax_max(ctx, max, inp, p.vocab);
          ref.softmax_max(host.ctx(), max_want, p.logits, p.vocab);
          EXPECT_TRUE(same_bits(down(max), max_want));
          const Tensor sum = out(Dtype::F32, {B, T}), target = out(Dtype::F32, {B, T});
          const Tensor sum_want = exact.empty({B, T}), target_want = exact.empty({B, T});
          k.softmax_sum(ctx, sum, target, inp, up(m), to, p.vocab);
          ref.softmax_sum(exact.ctx(), sum_want, target_want, wide(p.logits), wide(m), p.targets,
                          p.vocab);
          expect_near("sum", sum, sum_want,
                      [&, V = V](int64_t i) { return unit(V) * at(sum_want, i); });
          expect_near("target", target, target_want, [](int64_t) { return 0; });
          const Tensor losses = out(Dtype::F32, {B});
          k.softmax_loss(ctx, losses, inp, inp, up(m), up(s), up(x), to, p.vocab, kScale);
          expect_loss(losses, inp, l, of_d.logits, p.targets);
        }
      }
}

TEST_F(Softmax, TheMaximumIsExactAndKnowsNaN) {
  const Tensor logits = host.random({2, 3, 300}, -9, -3), max = out(Dtype::F32, {2, 3});
  set(logits, 2 * 300 + 299, 5);  // padding
  set(logits, 3 * 300 + 7, NAN);
  k.softmax_max(ctx, max, up(logits), 299);
  const Tensor got = down(max);
  for (int64_t row = 0; row < 6; ++row) {
    double want = -INFINITY;
    for (int64_t v = 0; v < 299; ++v) want = std::max(want, at(logits, row * 300 + v));
    if (row == 3)
      EXPECT_TRUE(std::isnan(at(got, row)));
    else
      EXPECT_EQ(at(got, row), want);
  }
}

}  // namespace
}  // namespace ladder::test
