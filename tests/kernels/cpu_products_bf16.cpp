// Products of BF16 and FP8 against their definition, bit for bit: factors widened to FP32, each
// leaf of K summed with fused multiply-adds from -0 (with AMX in an order of its own), the leaves
// joined as a tree. The program is built for each way in which this machine can multiply them,
// which LADDER_GEMM_BF16 names.
#include <array>
#include <functional>
#include <string_view>

#include "kernels/cpu/gemm/bf16.h"
#include "kernels/token_leaves.h"
#include "kernels/tree.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

using Element = std::function<float(int64_t)>;

constexpr std::string_view kWay = LADDER_GEMM_BF16;

float leaf_sum(Range range, const Element& a, const Element& b, float sum) {
  for (int64_t j = range.begin; j < range.end; ++j) sum = std::fma(a(j), b(j), sum);
  return sum;
}

/// With AMX: 32 terms at a time, those of even place and those of odd place apart.
float leaf_sum_in_steps(Range range, const Element& a, const Element& b, float sum) {
  for (int64_t first = range.begin; first < range.end; first += 32) {
    std::array<float, 2> terms{0, 0};
    for (int64_t j = first; j < std::min(first + 32, range.end); ++j) {
      float& term = terms[static_cast<size_t>((j - first) % 2)];
      term = std::fma(a(j), b(j), term);
    }
    sum += terms[0] + terms[1];
  }
  return sum;
}

/// Of a run of k behind others of its leaf, whose sum is given.
float go_on(Range range, const Element& a, const Element& b, float sum) {
  return kWay == "amx" ? leaf_sum_in_steps(range, a, b, sum) : leaf_sum(range, a, b, sum);
}

float by_definition(int64_t K, int64_t leaves, const Element& a, const Element& b) {
  return tree_sum<float>(leaves, [&](int64_t i) { return go_on(leaf(i, leaves, K), a, b, -0.0F); });
}

/// The same for tokens of B sequences.
float by_definition_of_tokens(int64_t B, int64_t T, const Element& a, const Element& b) {
  const int64_t n = matrix_leaves(kTokenChunks, T);
  return tree_sum<float>(B * n, [&](int64_t i) {
    const auto [early, late] = fold(i % n, n, T);
    const int64_t first = i / n * T;
    if (n == 1) return go_on({first, first + T}, a, b, -0.0F);
    const float sum = go_on({first + early.begin, first + early.end}, a, b, -0.0F);
    return go_on({first + late.begin, first + late.end}, a, b, sum);
  });
}

class CpuProductsBf16 : public ::testing::Test {
 protected:
  Sandbox box{cpu_kernels(), Dtype::BF16};
  const Kernels& k = box.kernels();
  const Ctx& ctx = box.ctx();

  static float code(const Tensor& x, int64_t i) { return widen(format_of(x.dtype), code_at(x, i)); }

  /// A gradient dw (N,K) against the definition, in some hundred elements. dout, inp (B,T,..)
  static void expect_sums(const Tensor& dw, const Tensor& dout, const Tensor& inp) {
    const int64_t B = dout.dim(0), T = dout.dim(1), K = dw.dim(-1);
    for (int64_t i = 0; i < dw.size(); i += dw.size() / 400 + 1)
      ASSERT_EQ(at(dw, i),
                by_definition_of_tokens(B, T, columns_of(dout)(i / K), columns_of(inp)(i % K)))
          << "element " << i << " of " << to_string(dw.shape) << ", B " << B << ", T " << T;
  }

  /// What reads row i of x, or column i.
  static std::function<Element(int64_t)> rows_of(Tensor x) {
    return [x](int64_t i) { return [=](int64_t j) { return code(x, i * x.dim(-1) + j); }; };
  }
  static std::function<Element(int64_t)> columns_of(Tensor x) {
    return [x](int64_t i) { return [=](int64_t j) { return code(x, j * x.dim(-1) + i); }; };
  }
};

struct Sizes {
  int64_t rows, N, K;
  int leaves;
};
struct Gradient {
  int64_t B, T, N = 50, K = 35;
};

/// Leaves of odd length, leaves longer than a slab, leaves that are empty, groups of three of
/// them; more than a block; so many gradients that they go past the caches. F32 outputs hide
/// nothing; matmul_forward's are BF16, so weight gradients carry the load.
TEST_F(CpuProductsBf16, AreTheTreeOfTheDefinition) {
  for (const auto& [B, T, N, K] : {Gradient{1, 700},
                                   {1, 1701},
                                   {5, 300},
                                   {12, 16},
                                   {12, 64},
                                   {37, 7},
                                   {64, 1},
                                   {3, 515},
                                   {2, 130},
                                   {3, 1030},
                                   {300, 2},
                                   {7, 100},
                                   {2, 0},
                                   {2, 40, 1050, 1008},
                                   {1, 700, 700, 70},
                                   {1, 2200, 600, 70},
                                   {1, 70, 1100, 70}}) {
    for (const int threads : {1, 3}) {
      box.set_threads(threads);
      const Tensor dout = box.random({B, T, N}), inp = box.random({B, T, K});
      const Tensor dw = box.empty(Dtype::F32, {N, K});
      k.matmul_backward_weight(ctx, dw, dout, inp, Into::Write);
      expect_sums(dw, dout, inp);
    }
  }
}

TEST_F(CpuProductsBf16, AreAddedOnceAndScaledByPowersOfTwo) {
  const int64_t B = 3, T = 65, N = 37, K = 50;
  Fp8Scale quarter{.scale = 4};
  Tensor dout = box.empty(Dtype::E5M2, {B, T, N}), inp = box.empty(Dtype::E4M3, {B, T, K});
  for (const Tensor& x : {dout, inp})
    for (int64_t i = 0; i < x.size(); ++i) set_code(x, i, static_cast<uint16_t>(i % 90));
  dout.fp8 = inp.fp8 = &quarter;
  const Tensor dw = box.filled(Dtype::F32, {N, K}, 3);
  k.matmul_backward_weight(ctx, dw, dout, inp, Into::Add);
  for (int64_t i = 0; i < dw.size(); ++i) {
    const float sum = by_definition(B * T, B, columns_of(dout)(i / K), columns_of(inp)(i % K));
    ASSERT_EQ(at(dw, i), 3 + sum / 16) << i;
  }
}

TEST_F(CpuProductsBf16, GetTheirBiasWhenTheSumIsComplete) {
  const int64_t rows = 70, N = 45, K = 777;
  const Tensor inp = box.random({rows, K}), w = box.random({N, K}), bias = box.random({N});
  const Tensor out = box.empty({rows, N});
  k.matmul_forward(ctx, out, inp, w, bias, 3);
  for (int64_t i = 0; i < out.size(); ++i) {
    const float sum = by_definition(K, 3, rows_of(inp)(i / N), rows_of(w)(i % N));
    ASSERT_EQ(code_at(out, i), narrow(kBf16, sum + code(bias, i % N), overflow_of(Dtype::BF16)));
  }
}

TEST_F(CpuProductsBf16, RoundOnceWhenTheyAreStored) {
  box.set_threads(3);
  for (const auto& [rows, N, K, leaves] :
       {Sizes{1, 3, 5, 8}, Sizes{67, 45, 128, 8}, Sizes{70, 45, 6001, 8}, Sizes{70, 50, 777, 3},
        Sizes{200, 300, 531, 1}, Sizes{30, 40, 4104, 5}, Sizes{1100, 70, 200, 1}}) {
    const Tensor inp = box.random({rows, K}), w = box.random({N, K}), wt = box.random({K, N});
    const Tensor out = box.empty({rows, N}), back = box.empty({rows, N});
    k.matmul_forward(ctx, out, inp, w, Tensor{}, leaves);
    k.matmul_backward_input(ctx, back, inp, wt, leaves);
    const auto rounded = [&](const Tensor& x, int64_t i, const Element& column) {
      const float sum = by_definition(K, leaves, rows_of(inp)(i / N), column);
      ASSERT_EQ(code_at(x, i), narrow(kBf16, sum, overflow_of(Dtype::BF16))) << i;
    };
    for (int64_t i = 0; i < out.size(); i += out.size() / 400 + 1) {
      rounded(out, i, rows_of(w)(i % N));
      rounded(back, i, columns_of(wt)(i % N));
    }
  }
}

/// FP8 codes are BF16 exactly, alone and beside BF16.
TEST_F(CpuProductsBf16, OfFp8Codes) {
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
    if (is_fp8(a) == is_fp8(b)) {
      const Tensor dout = factor(a, {B, T, N}), inp = factor(b, {B, T, K});
      const Tensor dw = box.empty(Dtype::F32, {N, K});
      k.matmul_backward_weight(ctx, dw, dout, inp, Into::Write);
      expect_sums(dw, dout, inp);
    }
    const Tensor inp = factor(a, {T, K}), w = factor(b, {N, K}), out = box.empty({T, N});
    k.matmul_forward(ctx, out, inp, w, Tensor{}, kLeaves);
    for (int64_t i = 0; i < out.size(); ++i) {
      const float sum = by_definition(K, kLeaves, rows_of(inp)(i / N), rows_of(w)(i % N));
      ASSERT_EQ(code_at(out, i), narrow(kBf16, sum, overflow_of(Dtype::BF16))) << i;
    }
  }
}

/// A number below the smallest normal one may count as zero: as a factor it takes its product
/// along, as a sum it takes itself. So K terms may be off by K (2 largest + 1) times that number.
TEST_F(CpuProductsBf16, TinyNumbersMayCountAsZero) {
  const int64_t T = 70, N = 40, K = 30;
  const double smallest = 0x1p-126;
  for (const double size : {0x1p-130, 0x1p-126, 0x1p-64}) {
    const Tensor dout = box.random({1, T, N}, -size, size);
    const Tensor inp =
        box.random({1, T, K}, size == 0x1p-64 ? -size : -1.0, size == 0x1p-64 ? size : 1.0);
    const Tensor dw = box.empty(Dtype::F32, {N, K});
    k.matmul_backward_weight(ctx, dw, dout, inp, Into::Write);
    for (int64_t i = 0; i < dw.size(); ++i) {
      const double want = by_definition(T, 1, columns_of(dout)(i / K), columns_of(inp)(i % K));
      ASSERT_LE(std::abs(at(dw, i) - want), 3 * static_cast<double>(T) * smallest) << i;
    }
  }
}

TEST_F(CpuProductsBf16, InfinitiesAndNansPass) {
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
TEST_F(CpuProductsBf16, OnlyExactFactorsGoInPairs) {
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

/// Small integers: every sum is exact, in FP32 and in 16 bits, so there is one right answer.
TEST_F(CpuProductsBf16, OfIntegersInFp8AreExactInEveryTable) {
  const int64_t B = 2, T = 9, N = 21, K = 17;
  Fp8Scale quarter{.scale = 0.25F}, two{.scale = 2}, four{.scale = 4};
  const auto integers = [&](Dtype format, Shape shape, int64_t step, Fp8Scale& scale) {
    Tensor x = box.empty(format, shape);
    x.fp8 = &scale;
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, static_cast<double>(i * step % 7 - 3));
    return x;
  };
  const Tensor x = integers(Dtype::E4M3, {B, T, K}, 5, quarter);
  const Tensor w = integers(Dtype::E4M3, {N, K}, 3, two);
  const Tensor d = integers(Dtype::E5M2, {B, T, N}, 4, four);
  const auto sum = [](int64_t n, const Element& a, const Element& b) {
    return double{leaf_sum({0, n}, a, b, 0)};
  };
  const auto value = [](const Tensor& of, int64_t first, int64_t step) -> Element {
    return [=](int64_t j) { return static_cast<float>(at(of, first + j * step)); };
  };
  for (const Kernels* table : {&cpu_kernels(), &ref_kernels()})
    for (const Dtype dtype : {Dtype::BF16, Dtype::F16}) {
      Sandbox own(*table, dtype);
      const Tensor out = own.empty({B, T, N}), dinp = own.empty({B, T, K});
      const Tensor dw = own.empty(Dtype::F32, {N, K});
      table->matmul_forward(own.ctx(), out, x, w, Tensor{}, 8);
      table->matmul_backward_input(own.ctx(), dinp, d, w, 8);
      table->matmul_backward_weight(own.ctx(), dw, d, x, Into::Write);
      for (int64_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(at(out, i), sum(K, value(x, i / N * K, 1), value(w, i % N * K, 1)));
      for (int64_t i = 0; i < dinp.size(); ++i)
        ASSERT_EQ(at(dinp, i), sum(N, value(d, i / K * N, 1), value(w, i % K, K)));
      for (int64_t i = 0; i < dw.size(); ++i)
        ASSERT_EQ(at(dw, i), sum(B * T, value(d, i / K, N), value(x, i % K, K)));
    }
}

}  // namespace
}  // namespace ladder::test
