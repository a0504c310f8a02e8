// The bits of `cpu` at sizes where threads, blocks and slabs really cut: same_bits_batch.cpp and
// same_bits_parts.cpp test the rule for all tables, on sizes that fit one tile.
#include <functional>

#include "kernels/token_leaves.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class CpuSameBits : public ::testing::Test {
 protected:
  explicit CpuSameBits(Dtype real = Dtype::F32) : dtype(real) {}

  const Dtype dtype;
  Sandbox box{cpu_kernels(), dtype};
  const Kernels& k = box.kernels();
  const Ctx& ctx = box.ctx();

  /// Runs with 1 to 4 threads on copies of `start`; all must have the bits of the first run.
  void expect_any_threads(const char* name, const std::vector<Tensor>& start,
                          const std::function<void(const std::vector<Tensor>&)>& run) {
    std::vector<Tensor> first;
    for (int threads = 1; threads <= 4; ++threads) {
      box.set_threads(threads);
      std::vector<Tensor> out;
      for (const Tensor& x : start) out.push_back(box.copy(x));
      run(out);
      if (threads == 1) first = out;
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_TRUE(same_bits(out[i], first[i])) << name << " with " << threads << " threads";
    }
  }
  /// Outputs: activations, and what is F32 beside them.
  Tensor act(const Shape& shape) { return box.filled(shape, 0.5); }
  Tensor sum(const Shape& shape) { return box.random(wide(dtype), shape); }

  /// Rows and columns of a matrix, as a matrix of its own.
  Tensor part(const Tensor& x, Range rows, Range cols) {
    const Tensor y = box.empty({rows.size(), cols.size()});
    for (int64_t r = 0; r < rows.size(); ++r)
      for (int64_t c = 0; c < cols.size(); ++c)
        set(y, r * cols.size() + c, at(x, (rows.begin + r) * x.dim(-1) + cols.begin + c));
    return y;
  }
  Tensor columns(const Tensor& x, int64_t begin, int64_t end) {
    return part(x, {0, x.rows()}, {begin, end});
  }
};

/// With activations of 32 and of 16 bits.
class CpuAnyThreads : public CpuSameBits, public ::testing::WithParamInterface<Dtype> {
 protected:
  CpuAnyThreads() : CpuSameBits(GetParam()) {}
};

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
    const Tensor out = box.empty({rows, N}), back = box.empty({rows, N});
    k.matmul_forward(ctx, out, inp, w, Tensor{}, leaves);
    k.matmul_backward_input(ctx, back, inp, wt, leaves);
    for (int64_t i = 0; i < rows * N; i += rows * N / 400 + 1) {
      const int64_t r = i / N, n = i % N;
      const auto x = [&](int64_t j) { return inp.data<float>()[r * K + j]; };
      ASSERT_EQ(out.data<float>()[i],
                by_definition(K, leaves, x, [&](int64_t j) { return w.data<float>()[n * K + j]; }))
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
    k.matmul_backward_weight(ctx, dw, dout, inp, Into::Write);
    for (int64_t i = 0; i < N * K; i += 1 + N * K / 50000)
      ASSERT_EQ(dw.data<float>()[i],
                by_definition_of_tokens(
                    B, T, [&, N = N](int64_t t) { return dout.data<float>()[t * N + i / K]; },
                    [&, K = K](int64_t t) { return inp.data<float>()[t * K + i % K]; }))
          << B << " sequences of " << T << ", element " << i;
  }
}

TEST_F(CpuSameBits, AProductDoesNotFeelItsNeighbours) {
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

TEST_P(CpuAnyThreads, ParameterGradients) {
  const int64_t B = 12, T = 64, C = 130, N = 390, V = 50;
  const Tensor x = box.random({B, T, C}), d = box.random({B, T, C}), e = box.random({B, T, N});
  const Tensor mean = box.random(wide(dtype), {B, T});
  const Tensor rstd = box.random(wide(dtype), {B, T}, 0.5, 2);
  const Tensor tokens = box.tokens({B, T}, V);
  const int64_t kMany = 1700;  // columns: more than a thread sums together
  const Tensor many = box.random({2, T, kMany});
  for (const Into into : {Into::Write, Into::Add}) {
    expect_any_threads("embed", {sum({V, C}), sum({T + 3, C})},
                       [&](auto& out) { k.embed_backward(ctx, out[0], out[1], d, tokens, into); });
    expect_any_threads("norm", {sum({C}), sum({C})}, [&](auto& out) {
      k.norm_backward_weight(ctx, out[0], out[1], d, x, mean, rstd, into);
    });
    expect_any_threads("matmul", {sum({N, C})},
                       [&](auto& out) { k.matmul_backward_weight(ctx, out[0], e, x, into); });
    expect_any_threads("bias", {sum({N})},
                       [&](auto& out) { k.bias_backward(ctx, out[0], e, into); });
    expect_any_threads("bias of many columns", {sum({kMany})},
                       [&](auto& out) { k.bias_backward(ctx, out[0], many, into); });
  }
}

TEST_P(CpuAnyThreads, Activations) {
  const int64_t B = 5, T = 70, NH = 3, C = 93, N = 390;
  const Tensor x = box.random({B, T, C}), d = box.random({B, T, C}), w = box.random({N, C});
  const Tensor bias = box.random({N}), e = box.random({B, T, N}), b = box.random({C});
  const Tensor mean = box.random(wide(dtype), {B, T});
  const Tensor rstd = box.random(wide(dtype), {B, T}, 0.5, 2);
  const Tensor qkv = box.random({B, T, 3 * C});
  const Tensor lse = box.random(wide(dtype), {B, NH, T}, 3, 4);
  const Tensor targets = box.tokens({B, T}, N - 5);
  expect_any_threads("matmul_forward", {act({B, T, N})},
                     [&](auto& out) { k.matmul_forward(ctx, out[0], x, w, bias, kLeaves); });
  expect_any_threads("matmul_backward_input", {act({B, T, C})},
                     [&](auto& out) { k.matmul_backward_input(ctx, out[0], e, w, kLeaves); });
  expect_any_threads("norm_forward", {act({B, T, C}), sum({B, T}), sum({B, T})},
                     [&](auto& out) { k.norm_forward(ctx, out[0], out[1], out[2], x, b, b); });
  expect_any_threads("norm_backward_input", {act({B, T, C})},
                     [&](auto& out) { k.norm_backward_input(ctx, out[0], d, x, b, mean, rstd); });
  expect_any_threads("attention_forward", {act({B, T, C}), sum({B, NH, T})},
                     [&](auto& out) { k.attention_forward(ctx, out[0], out[1], qkv); });
  expect_any_threads("attention_backward", {act({B, T, 3 * C})},
                     [&](auto& out) { k.attention_backward(ctx, out[0], d, qkv, x, lse); });
  expect_any_threads("gelu", {act({B, T, N}), act({B, T, N})}, [&](auto& out) {
    k.gelu_forward(ctx, out[0], e);
    k.gelu_backward(ctx, out[1], e, e);
  });
  expect_any_threads("join", {act({B, T, C})},
                     [&](auto& out) { k.residual_forward(ctx, out[0], x, d, b); });
  const Tensor tokens = box.tokens({B, T}, N), places = box.random({T, C});
  expect_any_threads("embed_forward", {act({B, T, C})},
                     [&](auto& out) { k.embed_forward(ctx, out[0], tokens, w, places); });
  expect_any_threads("cast", {sum({B, T, C})}, [&](auto& out) { k.cast(ctx, out[0], x); });
  expect_any_threads("cross_entropy", {sum({B}), act({B, T, N})}, [&](auto& out) {
    k.cross_entropy(ctx, out[0], out[1], e, targets, N - 5, 0.1F);
  });
}

TEST_F(CpuSameBits, AnyThreadsOptimizersAndNorms) {
  const int64_t R = 300, N = 203;
  const Tensor g = box.random({R, N});
  expect_any_threads("adafactor", {act({R, N}), act({R}), act({N})}, [&](auto& out) {
    k.adafactor_update(ctx, out[0], out[1], out[2], g,
                       {.lr = 0.1F, .beta2 = 0.9F, .eps = 1e-30F, .clip = 1, .weight_decay = 0.1F});
  });
  const Tensor w_limbs = box.zeros(Dtype::I64, {R, kLimbs}), g_limbs = box.copy(w_limbs);
  k.squared_norm(ctx, w_limbs, box.random({R, N}));
  k.squared_norm(ctx, g_limbs, g);
  expect_any_threads("adaptive_clip", {g},
                     [&](auto& out) { k.adaptive_clip(ctx, out[0], g_limbs, w_limbs, 0.9F); });
  for (const auto& [rows, length] : {std::pair{R, N}, {int64_t{1}, R * N}, {int64_t{3}, R * 67}}) {
    const Tensor x = g.view({R * N}).first(rows * length).view({rows, length});
    Tensor first;
    for (int threads = 1; threads <= 4; ++threads) {
      box.set_threads(threads);
      const Tensor limbs = box.zeros(Dtype::I64, {rows, kLimbs});
      k.squared_norm(ctx, limbs, x);
      if (threads == 1) first = limbs;
      EXPECT_TRUE(same_bits(limbs, first)) << rows << " rows, " << threads << " threads";
    }
  }
}

TEST_F(CpuSameBits, NegativeControlASumCutByThreadsDiffers) {
  const int64_t T = 64, N = 390;
  const Tensor dout = box.random({1, T, N});
  const Tensor whole = box.empty({N}), cut = box.empty({N});
  k.bias_backward(ctx, whole, dout, Into::Write);
  for (int64_t thread = 0; thread < 3; ++thread) {
    const Range mine = leaf(thread, 3, T);
    const Tensor tokens = part(dout.view({T, N}), mine, {0, N}).view({1, mine.size(), N});
    k.bias_backward(ctx, cut, tokens, thread == 0 ? Into::Write : Into::Add);
  }
  EXPECT_FALSE(same_bits(cut, whole));
  EXPECT_LT(relative_error(cut, whole), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Formats, CpuAnyThreads,
                         ::testing::Values(Dtype::F32, Dtype::BF16, Dtype::F16));

}  // namespace
}  // namespace ladder::test
