// Products of `cpu` against their definition, bit for bit: each leaf of K is one chain of fused
// multiply-adds that begins at -0, and the leaves are joined as a tree. Factors of BF16 and FP8 are
// widened to FP32 first. With AMX, a leaf of BF16 has an order of its own.
//
// The program is built once for each way in which this machine can multiply BF16;
// LADDER_GEMM_BF16 names the way. Products of F32 do not depend on it, and are tested in one
// program.
#include <array>
#include <string_view>
#include <vector>

#include "kernels/cpu/gemm/bf16.h"
#include "kernels/token_leaves.h"
#include "kernels/tree.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

/// A row or a column of a factor.
using Line = std::vector<float>;

constexpr std::string_view kWay = LADDER_GEMM_BF16;

float leaf_sum(Range range, const Line& a, const Line& b, float sum) {
  for (int64_t j = range.begin; j < range.end; ++j) sum = std::fma(a[size_t(j)], b[size_t(j)], sum);
  return sum;
}

/// With AMX: 32 terms at a time, those of even place and those of odd place apart.
float leaf_sum_in_steps(Range range, const Line& a, const Line& b, float sum) {
  for (int64_t first = range.begin; first < range.end; first += 32) {
    std::array<float, 2> terms{0, 0};
    for (int64_t j = first; j < std::min(first + 32, range.end); ++j) {
      float& term = terms[static_cast<size_t>((j - first) % 2)];
      term = std::fma(a[size_t(j)], b[size_t(j)], term);
    }
    sum += terms[0] + terms[1];
  }
  return sum;
}

/// `sum` of what comes before in a leaf, and the terms of `range`.
float go_on(Range range, const Line& a, const Line& b, float sum) {
  return kWay == "amx" ? leaf_sum_in_steps(range, a, b, sum) : leaf_sum(range, a, b, sum);
}

float by_definition(int64_t K, int64_t leaves, const Line& a, const Line& b) {
  return tree_sum<float>(leaves, [&](int64_t i) { return go_on(leaf(i, leaves, K), a, b, -0.0F); });
}

/// The same for tokens of B sequences.
float by_definition_of_tokens(int64_t B, int64_t T, const Line& a, const Line& b) {
  const int64_t n = matrix_leaves(kTokenChunks, T);
  return tree_sum<float>(B * n, [&](int64_t i) {
    const auto [early, late] = fold(i % n, n, T);
    const int64_t first = i / n * T;
    if (n == 1) return go_on({first, first + T}, a, b, -0.0F);
    const float sum = go_on({first + early.begin, first + early.end}, a, b, -0.0F);
    return go_on({first + late.begin, first + late.end}, a, b, sum);
  });
}

/// Of a matrix product: (rows,K) with N columns.
struct Extents {
  int64_t rows, N, K;
  int leaves;
};
/// Of a weight's gradient (N,K).
struct Gradient {
  int64_t B, T, N, K;
};

class ProductsTest : public ::testing::Test {
 protected:
  explicit ProductsTest(Dtype dtype) : box(cpu_kernels(), dtype) {}

  Sandbox box;
  const Kernels& k = box.kernels();
  const Ctx& ctx = box.ctx();

  /// x in F32, without its scale.
  Tensor numbers(const Tensor& x) {
    if (!is_narrow(x.dtype)) return x;
    const Tensor wide = box.empty(Dtype::F32, x.shape);
    for (int64_t i = 0; i < x.size(); ++i) set(wide, i, widen(format_of(x.dtype), code_at(x, i)));
    return wide;
  }
  /// What a tensor keeps of a number.
  static float stored(const Tensor& x, float sum) {
    return x.dtype == Dtype::BF16 ? widen(kBf16, narrow(kBf16, sum, Overflow::ToInfinity)) : sum;
  }
  /// Of a tensor in F32.
  static Line row_of(const Tensor& x, int64_t i) {
    const float* row = x.data<float>() + i * x.dim(-1);
    return {row, row + x.dim(-1)};
  }
  static Line column_of(const Tensor& x, int64_t i) {
    Line column;
    for (int64_t j = 0; j < x.rows(); ++j) column.push_back(x.data<float>()[j * x.dim(-1) + i]);
    return column;
  }

  /// Both products, some 400 elements of each.
  void expect_tree(const Extents& e) {
    const auto& [rows, N, K, leaves] = e;
    const Tensor inp = box.random({rows, K}), w = box.random({N, K}), wt = box.random({K, N});
    const Tensor out = box.empty({rows, N}), back = box.empty({rows, N}), bias = box.random({N});
    k.matmul_forward(ctx, out, inp, w, bias, leaves);
    k.matmul_backward_input(ctx, back, inp, wt, leaves);
    const Tensor a = numbers(inp), b = numbers(w), c = numbers(wt);
    for (int64_t i = 0; i < rows * N; i += rows * N / 400 + 1) {
      const float forward = by_definition(K, leaves, row_of(a, i / N), row_of(b, i % N));
      const float backward = by_definition(K, leaves, row_of(a, i / N), column_of(c, i % N));
      const auto added = static_cast<float>(at(bias, i % N));
      ASSERT_EQ(at(out, i), stored(out, forward + added)) << rows << " rows, element " << i;
      ASSERT_EQ(at(back, i), stored(back, backward)) << rows << " rows, element " << i;
    }
  }

  /// A gradient dw (N,K) that was written, and one that was added to 3; some 400 elements.
  void expect_gradient(const Tensor& dout, const Tensor& inp) {
    const int64_t B = dout.dim(0), T = dout.dim(1), N = dout.dim(2), K = inp.dim(2);
    const Tensor dw = box.empty(Dtype::F32, {N, K}), added = box.filled(Dtype::F32, {N, K}, 3);
    k.matmul_backward_weight(ctx, dw, dout, inp, Into::Write);
    k.matmul_backward_weight(ctx, added, dout, inp, Into::Add);
    const Tensor d = numbers(dout), x = numbers(inp);
    for (int64_t i = 0; i < N * K; i += N * K / 400 + 1) {
      const float sum = by_definition_of_tokens(B, T, column_of(d, i / K), column_of(x, i % K));
      ASSERT_EQ(at(dw, i), sum) << "element " << i << ", B " << B << ", T " << T << ", K " << K;
      ASSERT_EQ(at(added, i), 3 + sum) << "element " << i << ", B " << B << ", T " << T;
    }
  }
};

class Products : public ProductsTest, public ::testing::WithParamInterface<Dtype> {
 protected:
  Products() : ProductsTest(GetParam()) {}
};

// Leaves that are odd, empty, longer than a slab, and several in one; a number of them that is no
// power of two; blocks below and beside one another, with one slab and with several; few rows,
// which read B in place.
TEST_P(Products, AreTheTreeOfTheDefinition) {
  for (const Extents& e :
       {Extents{1, 3, 5, 8},  {1, 45, 6001, 8},    {2, 130, 1600, 8},  {5, 33, 128, 8},
        {8, 50, 777, 3},      {67, 45, 128, 8},    {70, 45, 6000, 8},  {70, 45, 6001, 8},
        {70, 50, 777, 3},     {400, 1100, 530, 1}, {200, 300, 531, 1}, {30, 40, 4100, 5},
        {30, 40, 4104, 5},    {900, 70, 1600, 8},  {700, 50, 1000, 5}, {300, 200, 520, 8},
        {300, 200, 1024, 1},  {20, 7000, 36, 1},   {620, 64, 1600, 8}, {200, 2100, 1100, 1},
        {1700, 2100, 250, 1}, {1700, 40, 1040, 8}, {1100, 70, 200, 1}})
    for (const int threads : {1, 3}) {
      box.set_threads(threads);
      expect_tree(e);
    }
}

// The last tiles are of fewer rows.
TEST_P(Products, OfAnyNumberOfRows) {
  for (int64_t rows = 1; rows <= 40; ++rows) expect_tree({rows, 10, 20, 1});
}

// The last steps of a leaf are taken apart, and all its steps in pieces: either may be cut short.
TEST_P(Products, OfLeavesOfAnyLength) {
  for (int64_t K = 1; K <= 140; ++K)
    for (const int leaves : {1, 2}) expect_tree({20, 40, leaves * K, leaves});
}

// Folded leaves, also of odd chunks, and longer than a slab; no tokens; more than a block. The last
// one is so large that it goes past the caches (cpu_past_caches.cpp).
TEST_P(Products, WeightGradientsAreTheTreeOverSequences) {
  for (const auto& [B, T, N, K] :
       {Gradient{1, 700, 50, 35}, {1, 1701, 50, 35}, {5, 300, 50, 35},   {3, 130, 50, 35},
        {3, 515, 50, 35},         {4, 1030, 50, 35}, {1, 1024, 70, 64},  {12, 16, 50, 35},
        {12, 64, 50, 35},         {37, 7, 50, 35},   {300, 1, 50, 35},   {300, 2, 50, 35},
        {64, 16, 50, 35},         {7, 100, 50, 35},  {2, 0, 50, 35},     {2, 13000, 7, 35},
        {2, 40, 1050, 1008},      {1, 700, 700, 70}, {1, 2200, 600, 70}, {1, 70, 1100, 70},
        {3, 5, 530, 1008}})
    for (const int threads : {1, 3}) {
      box.set_threads(threads);
      expect_gradient(box.random({B, T, N}), box.random({B, T, K}));
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, Products,
                         ::testing::ValuesIn(kWay == "no_pairs"
                                                 ? std::vector{Dtype::F32, Dtype::BF16}
                                                 : std::vector{Dtype::BF16}),
                         dtype_name);

class ProductsBf16 : public ProductsTest {
 protected:
  ProductsBf16() : ProductsTest(Dtype::BF16) {}
};

TEST_F(ProductsBf16, AreAddedOnceAndScaledByPowersOfTwo) {
  const int64_t B = 3, T = 65, N = 37, K = 50;
  Fp8Scale quarter{.scale = 4};
  Tensor dout = box.empty(Dtype::E5M2, {B, T, N}), inp = box.empty(Dtype::E4M3, {B, T, K});
  for (const Tensor& x : {dout, inp})
    for (int64_t i = 0; i < x.size(); ++i) set_code(x, i, static_cast<uint16_t>(i % 90));
  dout.fp8 = inp.fp8 = &quarter;
  const Tensor dw = box.filled(Dtype::F32, {N, K}, 3), d = numbers(dout), x = numbers(inp);
  k.matmul_backward_weight(ctx, dw, dout, inp, Into::Add);
  for (int64_t i = 0; i < dw.size(); ++i) {
    const float sum = by_definition(B * T, B, column_of(d, i / K), column_of(x, i % K));
    ASSERT_EQ(at(dw, i), 3 + sum / 16) << i;
  }
}

/// FP8 codes are BF16 exactly, alone and beside BF16.
TEST_F(ProductsBf16, OfFp8Codes) {
  Fp8Scale one{.scale = 1};
  const int64_t B = 3, T = 65, N = 37, K = 50;
  const auto factor = [&](Dtype dtype, Shape shape) {
    Tensor x = box.empty(dtype, shape);
    if (is_fp8(dtype)) x.fp8 = &one;
    const Tensor r = box.random(Dtype::F32, shape, -3, 3);
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, at(r, i));
    return x;
  };
  for (const auto& [a, b] : {std::pair{Dtype::E5M2, Dtype::E4M3},
                             {Dtype::BF16, Dtype::E4M3},
                             {Dtype::E5M2, Dtype::BF16}}) {
    if (is_fp8(a) == is_fp8(b)) expect_gradient(factor(a, {B, T, N}), factor(b, {B, T, K}));
    const Tensor inp = factor(a, {T, K}), w = factor(b, {N, K}), out = box.empty({T, N});
    k.matmul_forward(ctx, out, inp, w, Tensor{}, kLeaves);
    const Tensor x = numbers(inp), y = numbers(w);
    for (int64_t i = 0; i < out.size(); ++i) {
      const float sum = by_definition(K, kLeaves, row_of(x, i / N), row_of(y, i % N));
      ASSERT_EQ(at(out, i), stored(out, sum)) << i;
    }
  }
}

/// A number below the smallest normal one may count as zero: as a factor it takes its product
/// along, as a sum it takes itself. So K terms may be off by K (2 largest + 1) times that number.
TEST_F(ProductsBf16, TinyNumbersMayCountAsZero) {
  const int64_t T = 70, N = 40, K = 30;
  const double smallest = 0x1p-126;
  for (const double size : {0x1p-130, 0x1p-126, 0x1p-64}) {
    const Tensor dout = box.random({1, T, N}, -size, size);
    const Tensor inp =
        box.random({1, T, K}, size == 0x1p-64 ? -size : -1.0, size == 0x1p-64 ? size : 1.0);
    const Tensor dw = box.empty(Dtype::F32, {N, K});
    k.matmul_backward_weight(ctx, dw, dout, inp, Into::Write);
    const Tensor d = numbers(dout), x = numbers(inp);
    for (int64_t i = 0; i < dw.size(); ++i) {
      const double want = by_definition(T, 1, column_of(d, i / K), column_of(x, i % K));
      ASSERT_LE(std::abs(at(dw, i) - want), 3 * static_cast<double>(T) * smallest) << i;
    }
  }
}

TEST_F(ProductsBf16, InfinitiesAndNansPass) {
  const int64_t T = 5, N = 16, K = 3;
  const Tensor dout = box.filled({1, T, N}, 1), inp = box.filled({1, T, K}, 1);
  set_code(dout, 2 * N, kBf16.first_special());      // dout[2,0] = infinity
  set_code(dout, 4 * N + 1, kBf16.nan());            // dout[4,1]
  set_code(dout, 2 * N + 2, kBf16.first_special());  // infinity - infinity
  set_code(dout, 3 * N + 2, 0x8000 | kBf16.first_special());
  const Tensor dw = box.empty(Dtype::F32, {N, K});
  k.matmul_backward_weight(ctx, dw, dout, inp, Into::Write);
  for (int64_t j = 0; j < K; ++j) {
    EXPECT_EQ(at(dw, j), std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isnan(at(dw, K + j)));
    EXPECT_TRUE(std::isnan(at(dw, 2 * K + j)));
    EXPECT_EQ(at(dw, 3 * K + j), static_cast<double>(T));
  }
}

/// The program says which path it tests, and takes no other.
TEST_F(ProductsBf16, OnlyExactFactorsGoInPairs) {
  const auto pairs = [](Dtype a, Dtype b) {
    Product p;
    p.K = 1;
    p.a.dtype = a;
    p.b.dtype = b;
    return multiplies_pairs(p);
  };
  EXPECT_EQ(pairs(Dtype::BF16, Dtype::BF16), kWay != "no_pairs");
  EXPECT_EQ(pairs(Dtype::E5M2, Dtype::E4M3), kWay != "no_pairs");
  EXPECT_FALSE(pairs(Dtype::F16, Dtype::F16));
  EXPECT_FALSE(pairs(Dtype::BF16, Dtype::F32));
}

}  // namespace
}  // namespace ladder::test
