// The bits of the products of `cpu`: the tree of their definition, whatever tiles and threads do.
#include <cmath>
#include <functional>

#include "kernels/token_leaves.h"
#include "tests/kernels/cpu_same_bits.h"

namespace ladder::test {
namespace {

/// What kernels/cpu/gemm/gemm.h promises, in four lines.
float by_definition(int64_t K, int64_t leaves, const std::function<float(int64_t)>& a,
                    const std::function<float(int64_t)>& b) {
  return tree_sum<float>(leaves, [&](int64_t i) {
    const Range range = leaf(i, leaves, K);
    float sum = -0.0F;
    for (int64_t j = range.begin; j < range.end; ++j) sum = std::fma(a(j), b(j), sum);
    return sum;
  });
}

/// The same for tokens of B sequences.
float by_definition_of_tokens(int64_t B, int64_t T, const std::function<float(int64_t)>& a,
                              const std::function<float(int64_t)>& b) {
  const int64_t n = matrix_leaves(kTokenChunks, T);
  return tree_sum<float>(B * n, [&](int64_t i) {
    const auto [early, late] = fold(i % n, n, T);
    float sum = -0.0F;
    for (const Range& range : {early, late})
      for (int64_t t = i / n * T + range.begin; t < i / n * T + range.end; ++t)
        sum = std::fma(a(t), b(t), sum);
    return sum;
  });
}

class Products : public CpuSameBits {
 protected:
  /// Both products of inp (rows,K) with N columns, some 400 elements of each.
  void expect_tree(int64_t rows, int64_t N, int64_t K, int leaves) {
    const Tensor inp = box.random({rows, K}), w = box.random({N, K}), wt = box.random({K, N});
    const Tensor out = box.empty({rows, N}), back = box.empty({rows, N}), bias = box.random({N});
    k.matmul_forward(ctx, out, inp, w, bias, leaves);
    k.matmul_backward_input(ctx, back, inp, wt, leaves);
    for (int64_t i = 0; i < rows * N; i += rows * N / 400 + 1) {
      const int64_t r = i / N, n = i % N;
      const auto x = [&](int64_t j) { return inp.data<float>()[r * K + j]; };
      const float product =
          by_definition(K, leaves, x, [&](int64_t j) { return w.data<float>()[n * K + j]; });
      ASSERT_EQ(out.data<float>()[i], product + bias.data<float>()[n])
          << rows << " rows, element " << i;
      ASSERT_EQ(back.data<float>()[i],
                by_definition(K, leaves, x, [&](int64_t j) { return wt.data<float>()[j * N + n]; }))
          << rows << " rows, element " << i;
    }
  }
};

struct Sizes {
  int64_t rows, N, K;
  int leaves;
};

// Leaves longer than a slab, several in one, a number that is no power of two; blocks below and
// beside one another, with one slab and with several.
TEST_F(Products, AreTheTreeOfTheDefinition) {
  for (const auto& [rows, N, K, leaves] :
       {Sizes{1, 3, 5, 8}, Sizes{67, 45, 128, 8}, Sizes{70, 45, 6000, 8}, Sizes{70, 50, 777, 3},
        Sizes{400, 1100, 530, 1}, Sizes{30, 40, 4100, 5}, Sizes{900, 70, 1600, 8},
        Sizes{700, 50, 1000, 5}, Sizes{300, 200, 520, 8}, Sizes{300, 200, 1024, 1},
        Sizes{20, 7000, 36, 1}, Sizes{620, 64, 1600, 8}, Sizes{200, 2100, 1100, 1},
        Sizes{1700, 2100, 250, 1}, Sizes{1700, 40, 1040, 8}})
    for (const int threads : {1, 3}) {
      box.set_threads(threads);
      expect_tree(rows, N, K, leaves);
    }
}

// The last tiles are of fewer rows.
TEST_F(Products, OfAnyNumberOfRows) {
  for (int64_t rows = 1; rows <= 40; ++rows) expect_tree(rows, 10, 20, 1);
}

// The last steps of a leaf are taken apart, and all its steps in pieces: either may be cut short.
TEST_F(Products, OfLeavesOfAnyLength) {
  for (int64_t K = 1; K <= 140; ++K)
    for (const int leaves : {1, 2}) expect_tree(20, 40, leaves * K, leaves);
}

TEST_F(CpuSameBits, WeightGradientsAreTheTreeOverSequences) {
  box.set_threads(2);
  struct Case {
    int64_t B, T, N, K;
  };
  // Folded leaves, also of odd chunks, and longer than a slab. No tokens; so large that it
  // goes past the caches (cpu_past_caches.cpp).
  for (const auto& [B, T, N, K] : {Case{1, 700, 50, 35},
                                   {5, 300, 50, 35},
                                   {3, 130, 50, 35},
                                   {4, 1030, 50, 35},
                                   {1, 1024, 70, 64},
                                   {2, 13000, 7, 35},
                                   {12, 64, 50, 35},
                                   {37, 7, 50, 35},
                                   {300, 1, 50, 35},
                                   {64, 16, 50, 35},
                                   {2, 0, 50, 35},
                                   {3, 5, 530, 1008}}) {
    const Tensor dout = box.random({B, T, N}), inp = box.random({B, T, K}), dw = box.empty({N, K});
    const Tensor added = box.filled({N, K}, 3);
    k.matmul_backward_weight(ctx, dw, dout, inp, Into::Write);
    k.matmul_backward_weight(ctx, added, dout, inp, Into::Add);
    for (int64_t i = 0; i < N * K; i += 1 + N * K / 50000) {
      const float sum = by_definition_of_tokens(
          B, T, [&, N = N](int64_t t) { return dout.data<float>()[t * N + i / K]; },
          [&, K = K](int64_t t) { return inp.data<float>()[t * K + i % K]; });
      ASSERT_EQ(dw.data<float>()[i], sum) << B << " sequences of " << T << ", element " << i;
      ASSERT_EQ(added.data<float>()[i], 3 + sum) << B << " sequences of " << T;
    }
  }
}

TEST_F(CpuSameBits, AProductDoesNotFeelItsNeighbors) {
  const int64_t rows = 150, N = 211, K = 600;
  const Tensor inp = box.random({rows, K}), w = box.random({N, K}), bias = box.random({N});
  const Tensor whole = box.empty({rows, N});
  k.matmul_forward(ctx, whole, inp, w, bias, kLeaves);
  box.set_threads(4);
  for (const Range r : {Range{0, 1}, Range{3, 150}, Range{77, 90}})
    for (const Range n : {Range{0, 211}, Range{210, 211}, Range{5, 100}}) {
      const Tensor out = box.empty({r.size(), n.size()});
      k.matmul_forward(ctx, out, inp.slice(r.begin, r.size()), w.slice(n.begin, n.size()),
                       bias.slice(n.begin, n.size()), kLeaves);
      EXPECT_TRUE(same_bits(out, part(whole, r, n))) << r.begin << " " << n.begin;
    }
}

TEST_F(CpuSameBits, HalfTheLeavesTwiceIsAllLeaves) {
  for (const int64_t K : {64, 1536, 6144}) {
    const Tensor inp = box.random({40, K}), w = box.random({60, K});
    const Tensor whole = box.empty({40, 60}), left = box.empty({40, 60}),
                 right = box.empty({40, 60});
    k.matmul_forward(ctx, whole, inp, w, Tensor{}, 8);
    k.matmul_forward(ctx, left, columns(inp, 0, K / 2), columns(w, 0, K / 2), Tensor{}, 4);
    k.matmul_forward(ctx, right, columns(inp, K / 2, K), columns(w, K / 2, K), Tensor{}, 4);
    k.add(ctx, left, left, right);
    EXPECT_TRUE(same_bits(left, whole)) << K;
    // Negative control: a cut that is no border between aligned leaves.
    const int64_t third = K / 3;
    k.matmul_forward(ctx, left, columns(inp, 0, third), columns(w, 0, third), Tensor{}, 4);
    k.matmul_forward(ctx, right, columns(inp, third, K), columns(w, third, K), Tensor{}, 4);
    k.add(ctx, left, left, right);
    EXPECT_FALSE(same_bits(left, whole)) << K;
  }
}

}  // namespace
}  // namespace ladder::test
