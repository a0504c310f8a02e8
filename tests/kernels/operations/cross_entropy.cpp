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

  /// Against `l` and `d`, those of ref, for logits between -5 and 5 and sums of at most V terms.
  static void expect_loss(const Tensor& losses, const Tensor& dlogits, const Tensor& l,
                          const Tensor& d, const Tensor& targets) {
    const int64_t V = d.dim(2);
    const auto T = static_cast<double>(d.dim(1));
    // x - m is at most 10 and rounded twice, as is each of the at most 2 + 10 rescalings of a
    // sum: twenty roundings for an exponential and four for exp2_quick, a factor of at most 2 for
    // the others.
    const double unit = kRound * (interleaved_roundings(V, 16) + 2 * 24 + 12);
    expect_near("losses", losses, l, [&](int64_t b) { return T * unit + kRound * T * at(l, b); });
    expect_near("dlogits", dlogits, d, [&](int64_t i) {
      const bool target = targets.data<int32_t>()[i / V] == i % V;
      const double p = at(d, i) / kScale + (target ? 1 : 0);
      return kScale * (2 * unit * p + (target ? 2 * kRound : 0));
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

/// A rank's columns of the logits, and what it computes, on the device.
struct Part {
  int64_t vocab;
  Tensor logits, targets, max, sum, target;
};

class Softmax : public CrossEntropy {
 protected:
  /// Columns [rank V, (rank + 1) V) of logits.
  Part part_of(const Tensor& logits, const Tensor& targets, int64_t vocab, int64_t rank,
               int64_t V) {
    const int64_t B = logits.dim(0), T = logits.dim(1), begin = rank * V;
    const Tensor own = host.empty(logits.dtype, {B, T, V}), columns = host.copy(targets);
    for (int64_t i = 0; i < own.size(); ++i)
      set(own, i, at(logits, i / V * logits.dim(2) + begin + i % V));
    for (int64_t i = 0; i < columns.size(); ++i) {
      int32_t& target = columns.data<int32_t>()[i];
      const bool here = target >= begin && target < begin + V;
      if (target != kIgnore) target = here ? target - static_cast<int32_t>(begin) : kElsewhere;
    }
    return {.vocab = std::clamp<int64_t>(vocab - begin, 0, V),
            .logits = up(own),
            .targets = share(columns),
            .max = out(Dtype::F32, {B, T}),
            .sum = out(Dtype::F32, {B, T}),
            .target = out(Dtype::F32, {B, T})};
  }

  /// Every part's `member` becomes what `join` makes of all.
  void exchange(std::vector<Part>& parts, Tensor Part::*member, double start,
                const std::function<double(double, double)>& join) {
    const Tensor all = host.filled((parts[0].*member).shape, start);
    for (const Part& part : parts) {
      const Tensor own = down(part.*member);
      for (int64_t i = 0; i < all.size(); ++i) set(all, i, join(at(all, i), at(own, i)));
    }
    for (Part& part : parts) part.*member = up(all);
  }
};

TEST_F(Softmax, LossesAndGradientsOfAVocabularyCutOverRanks) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, V] : {Batch{3, 5, 8}, {2, 9, 40}, {4, 3, 264}, {1, 2, 4096}})
      for (const int64_t ranks : {1, 2, 4}) {
        const int64_t vocab = V - 3, own = V / ranks;  // of 8 columns, rank 3 of 4 has padding only
        const Tensor logits = host.random(dtype, {B, T, V}, -5, 5);
        const Tensor targets = host.tokens({B, T}, vocab);
        targets.data<int32_t>()[0] = kIgnore;
        const Tensor l = exact.empty({B}), d = exact.empty(logits.shape);
        ref.cross_entropy(exact.ctx(), l, d, wide(logits), targets, vocab, kScale);
        std::vector<Part> parts;
        for (int64_t r = 0; r < ranks; ++r)
          parts.push_back(part_of(logits, targets, vocab, r, own));
        for (const Part& p : parts) k.softmax_max(ctx, p.max, p.logits, p.vocab);
        exchange(parts, &Part::max, -INFINITY, [](double a, double b) { return std::max(a, b); });
        for (const Part& p : parts)
          k.softmax_sum(ctx, p.sum, p.target, p.logits, p.max, p.targets, p.vocab);
        exchange(parts, &Part::sum, 0, std::plus<>());
        exchange(parts, &Part::target, 0, std::plus<>());
        const Tensor dlogits = host.empty(dtype, logits.shape), losses = out(Dtype::F32, {B});
        for (int64_t r = 0; r < ranks; ++r) {
          const Part& p = parts[static_cast<size_t>(r)];
          k.softmax_loss(ctx, losses, p.logits, p.logits, p.max, p.sum, p.target, p.targets,
                         p.vocab, kScale);
          const Tensor gradient = down(p.logits);
          for (int64_t i = 0; i < gradient.size(); ++i)
            set(dlogits, i / own * V + r * own + i % own, at(gradient, i));
        }
        expect_loss(losses, up(dlogits), l, d, targets);
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
