// Cross-entropy in parts: as a whole, and with the vocabulary cut over ranks.
#include <algorithm>

#include "kernels/tree.h"
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

constexpr float kScale = 0.37F;

/// Logits and targets, some of them ignored; and the results of cross_entropy.
struct LossBatch {
  int64_t B, T, V, vocab;
  Tensor logits, targets, losses, dlogits;
};

/// What a rank has of a batch, and what it computes.
struct Rank {
  int64_t vocab;
  Tensor logits, targets, max, sum, target, losses, dlogits;
};

class SameBitsSoftmax : public SameBits {
 protected:
  LossBatch make(int64_t B, int64_t T, int64_t V, int64_t vocab) {
    LossBatch x{.B = B,
                .T = T,
                .V = V,
                .vocab = vocab,
                .logits = box.random({B, T, V}, -5, 5),
                .targets = box.tokens({B, T}, vocab),
                .losses = box.empty(sums, {B}),
                .dlogits = box.empty({B, T, V})};
    for (int64_t row = 0; row < B * T; ++row)  // padding is not read
      for (int64_t v = vocab; v < V; ++v) set(x.logits, row * V + v, NAN);
    for (int64_t row = 2; row < B * T; row += 5) x.targets.data<int32_t>()[row] = kIgnore;
    box.set_threads(1);
    k.cross_entropy(ctx, x.losses, x.dlogits, x.logits, x.targets, vocab, kScale);
    use_threads();
    return x;
  }

  /// Columns [rank V / tp, (rank + 1) V / tp).
  Rank rank_of(const LossBatch& x, int64_t rank, int64_t tp) {
    const int64_t V = x.V / tp;
    const VocabularyPart part = part_of(box, x.logits, x.targets, x.vocab, rank * V, V);
    const auto of_tokens = [&] { return box.empty(sums, {x.B, x.T}); };
    return {.vocab = part.vocab,
            .logits = part.logits,
            .targets = part.targets,
            .max = of_tokens(),
            .sum = of_tokens(),
            .target = of_tokens(),
            .losses = box.empty(sums, {x.B}),
            .dlogits = box.empty({x.B, x.T, V})};
  }

  /// Every rank's `member` becomes join(i) of all ranks, for each element i.
  template <class F>
  static void exchange(std::vector<Rank>& ranks, Tensor Rank::*member, const F& join) {
    for (int64_t i = 0; i < (ranks[0].*member).size(); ++i) {
      const double all = join(i);
      for (const Rank& rank : ranks) set(rank.*member, i, all);
    }
  }

  /// The sum of all ranks' element i, rounded to float after each addition unless it is F64.
  double sum_over(const std::vector<Rank>& ranks, Tensor Rank::*member, int64_t i) {
    const auto n = static_cast<int64_t>(ranks.size());
    const auto term = [&](int64_t r) { return at(ranks[static_cast<size_t>(r)].*member, i); };
    if (sums == Dtype::F64) return tree_sum<double>(n, term);
    return tree_sum<float>(n, [&](int64_t r) { return static_cast<float>(term(r)); });
  }

  std::vector<Rank> run(const LossBatch& x, int64_t tp) {
    Ctx own = ctx;
    own.leaves = kLeaves / static_cast<int>(tp);
    std::vector<Rank> ranks;
    for (int64_t r = 0; r < tp; ++r) ranks.push_back(rank_of(x, r, tp));
    for (const Rank& r : ranks) k.softmax_max(own, r.max, r.logits, r.vocab);
    exchange(ranks, &Rank::max, [&](int64_t i) {
      double most = -INFINITY;
      for (const Rank& r : ranks) most = std::max(most, at(r.max, i));
      return most;
    });
    for (const Rank& r : ranks)
      k.softmax_sum(own, r.sum, r.target, r.logits, r.max, r.targets, r.vocab);
    exchange(ranks, &Rank::sum, [&](int64_t i) { return sum_over(ranks, &Rank::sum, i); });
    exchange(ranks, &Rank::target, [&](int64_t i) { return sum_over(ranks, &Rank::target, i); });
    for (const Rank& r : ranks)
      k.softmax_loss(own, r.losses, r.dlogits, r.logits, r.max, r.sum, r.target, r.targets, r.vocab,
                     kScale);
    return ranks;
  }

  /// The gradients of all ranks as one tensor.
  Tensor joined(const std::vector<Rank>& ranks, const Shape& shape) {
    const Tensor all = box.empty(shape);
    const auto tp = static_cast<int64_t>(ranks.size());
    const int64_t V = shape.dims[2] / tp;
    for (int64_t r = 0; r < tp; ++r) {
      const Tensor& own = ranks[static_cast<size_t>(r)].dlogits;
      for (int64_t i = 0; i < own.size(); ++i) set(all, i / V * V * tp + r * V + i % V, at(own, i));
    }
    return all;
  }
};

TEST_P(SameBitsSoftmax, AVocabularyCutOverRanksGivesTheBitsOfCrossEntropy) {
  // With 37 of 64 columns, ranks 5 to 7 of 8 have only padding.
  for (const auto& [B, T, V, vocab] :
       {std::array{3, 5, 64, 37}, std::array{2, 3, 64, 64}, std::array{2, 4, 8, 3},
        std::array{1, 9, 200, 193}, std::array{4, 16, 1024, 1000}}) {
    const LossBatch x = make(B, T, V, vocab);
    for (const int tp : {2, 4, 8}) {
      const std::vector<Rank> ranks = run(x, tp);
      for (const Rank& rank : ranks)
        EXPECT_TRUE(same_bits(rank.losses, x.losses)) << "V " << V << " tp " << tp;
      EXPECT_TRUE(same_bits(joined(ranks, x.logits.shape), x.dlogits)) << "V " << V << " tp " << tp;
    }
  }
}

TEST_P(SameBitsSoftmax, ARankWithPaddingOnlyAddsNothing) {
  const LossBatch x = make(2, 3, 64, 37);
  const Rank last = rank_of(x, 7, 8);
  k.softmax_max(ctx, last.max, last.logits, 0);
  const Tensor max = box.filled(sums, {2, 3}, 4);
  k.softmax_sum(ctx, last.sum, last.target, last.logits, max, last.targets, 0);
  k.softmax_loss(ctx, last.losses, last.dlogits, last.logits, max, box.filled(sums, {2, 3}, 9),
                 last.target, last.targets, 0, kScale);
  EXPECT_TRUE(same_bits(last.max, box.filled(sums, {2, 3}, -INFINITY)));
  EXPECT_TRUE(same_bits(last.sum, box.filled(sums, {2, 3}, 0)));
  EXPECT_TRUE(same_bits(last.target, box.filled(sums, {2, 3}, -0.0)));
  EXPECT_TRUE(same_bits(last.dlogits, box.filled(last.dlogits.shape, 0)));
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsSoftmax, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);

}  // namespace
}  // namespace ladder::test
