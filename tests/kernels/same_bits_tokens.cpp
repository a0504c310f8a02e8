// Ranks that share a sequence: each sums its own tokens. If ranks join these sums by the rule of
// kernels/token_leaves.h, the result has the bits of one rank.
#include <cmath>
#include <functional>

#include "kernels/token_leaves.h"
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

/// What a sequence's sums read, or some of its tokens.
struct Sequence {
  Tensor dout, inp, mean, rstd, tokens, logits;
};

/// The sums of a call: two matrices, and four vectors.
struct Sums {
  std::vector<Tensor> matrices, vectors;
};

class SameBitsTokens : public SameBits {
 protected:
  static constexpr int64_t kN = 24, kC = 7, kV = 9;

  void SetUp() override { use_threads(); }

  /// Numbers of many sizes; or small integers. Sums of integers are exact in any order, so they
  /// show whether a term is missing or counted twice.
  Sequence make(int64_t T, bool integers) {
    const auto numbers = [&](const Shape& shape) {
      const Tensor x = box.random(shape, -4, 4);
      for (int64_t i = 0; integers && i < x.size(); ++i) set(x, i, std::round(at(x, i)));
      return integers ? x : spread(x);
    };
    return {.dout = numbers({1, T, kN}),
            .inp = numbers({1, T, kN + kC}),
            .mean = integers ? box.filled(sums, {1, T}, 1) : box.random(sums, {1, T}),
            .rstd = integers ? box.filled(sums, {1, T}, 2) : box.random(sums, {1, T}, 0.5, 2),
            .tokens = box.tokens({1, T}, kV),
            .logits = integers ? box.filled({1, T, kV}, 0) : box.random({1, T, kV}, -5, 5)};
  }

  /// The tokens of these ranges.
  Sequence part(const Sequence& x, const std::vector<Range>& ranges) {
    const auto cut = [&](const Tensor& all) { return tokens_of(all, 0, 1, ranges); };
    return {cut(x.dout), cut(x.inp), cut(x.mean), cut(x.rstd), cut(x.tokens), cut(x.logits)};
  }

  Sums sum(const Sequence& x, int chunks) {
    Ctx own = ctx;
    own.token_chunks = chunks;
    const int64_t T = x.dout.dim(1);
    const auto vector = [&](int64_t n) { return box.empty(sums, {n}); };
    const Sums to{{box.empty(sums, {kN, kN + kC}), box.empty(sums, {kV, kN})},
                  {vector(kN), vector(kN), vector(kN), vector(1)}};
    const auto& v = to.vectors;
    k.matmul_backward_weight(own, to.matrices[0], x.dout, x.inp, Into::Write);
    k.embed_backward(own, to.matrices[1], box.empty(sums, {T, kN}), x.dout, x.tokens, Into::Write);
    k.bias_backward(own, v[0], x.dout, Into::Write);
    k.norm_backward_weight(own, v[1], v[2], x.dout, columns(x.inp, 0, kN), x.mean, x.rstd,
                           Into::Write);
    k.cross_entropy(own, v[3], Tensor{}, x.logits, x.tokens, kV, 1);
    return to;
  }

  using Share = std::function<std::vector<Range>(int64_t rank)>;
  /// A rank's tokens in zig-zag order: an early run and a late one.
  static Share zigzag(int64_t T, int64_t cp) {
    return [=](int64_t rank) {
      const auto [early, late] = fold(rank, cp, T);
      return std::vector<Range>{early, late};
    };
  }
  /// A rank's tokens if they are neighbors.
  static Share neighbors(int64_t T, int64_t cp) {
    return [=](int64_t rank) { return std::vector<Range>{leaf(rank, cp, T)}; };
  }

  Sums by_ranks(const Sequence& x, int64_t cp, const Share& share) {
    std::vector<std::vector<Tensor>> matrices(2), vectors(4);
    for (int64_t rank = 0; rank < cp; ++rank) {
      const Sums own = sum(part(x, share(rank)), kTokenChunks / static_cast<int>(cp));
      for (size_t i = 0; i < 2; ++i) matrices[i].push_back(own.matrices[i]);
      for (size_t i = 0; i < 4; ++i) vectors[i].push_back(own.vectors[i]);
    }
    Sums joined;
    for (const auto& m : matrices) joined.matrices.push_back(join(m));
    for (const auto& v : vectors) joined.vectors.push_back(join(v));
    return joined;
  }

  /// How many sums differ, of matrices and of vectors.
  static std::pair<int, int> differing(const Sums& a, const Sums& b) {
    std::pair<int, int> count{0, 0};
    for (size_t i = 0; i < 2; ++i) count.first += !same_bits(a.matrices[i], b.matrices[i]);
    for (size_t i = 0; i < 4; ++i) count.second += !same_bits(a.vectors[i], b.vectors[i]);
    return count;
  }
};

// With 528 tokens a chunk has 33. All terms of the first sum are -0: where tokens are multiplied in
// pairs, a chunk of odd length makes +0 of them.
TEST_P(SameBitsTokens, ZigZagRanksGiveTheBitsOfOne) {
  for (const int64_t T : {16, 64, 128, 256, 512, 528, 1024})
    for (const bool integers : {true, false}) {
      const Sequence x = make(T, integers);
      for (int64_t t = 0; !integers && t < T; ++t)
        set(x.dout, t * kN, at(x.inp, t * (kN + kC)) < 0 ? 0 : -0.0);
      const Sums whole = sum(x, kTokenChunks);
      for (const int64_t cp : {1, 2, 4, 8}) {
        const auto [matrices, vectors] = differing(by_ranks(x, cp, zigzag(T, cp)), whole);
        EXPECT_EQ(vectors, 0) << "T " << T << " cp " << cp;
        // More ranks than leaves share only integers.
        const bool shared = integers || cp <= matrix_leaves(kTokenChunks, T);
        EXPECT_TRUE(!shared || matrices == 0) << "T " << T << " cp " << cp;
      }
    }
}

TEST_P(SameBitsTokens, NegativeControlOtherSharesDiffer) {
  for (const int64_t T : {512, 1024}) {
    const Sequence x = make(T, false);
    const Sums whole = sum(x, kTokenChunks);
    const auto expect_differing = [&](const char* what, int64_t cp, const Share& share) {
      const auto [matrices, vectors] = differing(by_ranks(x, cp, share), whole);
      EXPECT_EQ(matrices, 2) << what << ", T " << T << " cp " << cp;
      EXPECT_GE(vectors, 3) << what << ", T " << T << " cp " << cp;  // the loss is a single number
    };
    for (const int64_t cp : {2, 4, 8}) {
      expect_differing("unfolded", cp, neighbors(T, cp));
      if (cp == 2) continue;  // two terms commute
      expect_differing("joined at distance cp / 2 first", cp,
                       [&](int64_t rank) { return zigzag(T, cp)(rank % 2 * cp / 2 + rank / 2); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, SameBitsTokens, ::testing::ValuesIn(tables_of_all_dtypes()),
                         table_name);

}  // namespace
}  // namespace ladder::test
