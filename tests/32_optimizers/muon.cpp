// Newton-Schulz beside its definition in double, and the work of owners. Muon's updates: PyTorch's
// runs, tests/golden/muon.json; on any ranks: ../layouts.txt.
#include "chapters/32_optimizers/muon.h"

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/model/config.h"
#include "common/random.h"
#include "kernels/kernels.h"

namespace ladder::test {
namespace {

using Numbers = std::vector<double>;

struct Matrix {
  int64_t R, N;
  Numbers x = Numbers(static_cast<size_t>(R * N));

  double& at(int64_t r, int64_t c) { return x[static_cast<size_t>(r * N + c)]; }
  double at(int64_t r, int64_t c) const { return x[static_cast<size_t>(r * N + c)]; }
};

float noise(const std::string& name, size_t i) {
  return static_cast<float>(Random(5, name).normal_pair(i / 2)[i % 2]);
}

Ctx context(Arena& arena) {
  Ctx ctx;
  ctx.kernels = &cpu_kernels();
  ctx.scratch = arena.alloc(Mem::Workspace, "scratch", Dtype::U8, {1, ctx.kernels->scratch_bytes});
  return ctx;
}

Matrix turned(const Matrix& a) {
  Matrix t{a.N, a.R};
  for (int64_t r = 0; r < a.R; ++r)
    for (int64_t c = 0; c < a.N; ++c) t.at(c, r) = a.at(r, c);
  return t;
}

/// a b^T
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out{a.R, b.R};
  for (int64_t r = 0; r < a.R; ++r)
    for (int64_t c = 0; c < b.R; ++c)
      for (int64_t k = 0; k < a.N; ++k) out.at(r, c) += a.at(r, k) * b.at(c, k);
  return out;
}

double norm(const Numbers& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

/// The definition, in double.
Matrix orthogonal(Matrix x) {
  if (x.R > x.N) return turned(orthogonal(turned(x)));
  const double length = std::max(norm(x.x), 1e-7);
  for (double& v : x.x) v /= length;
  for (int step = 0; step < 5; ++step) {
    const Matrix a = product(x, x), aa = product(a, a);
    Matrix b{x.R, x.R};
    for (size_t i = 0; i < b.x.size(); ++i) b.x[i] = -4.7750 * a.x[i] + 2.0315 * aa.x[i];
    const Matrix bx = product(b, turned(x));
    for (size_t i = 0; i < x.x.size(); ++i) x.x[i] = 3.4445 * x.x[i] + bx.x[i];
  }
  return x;
}

/// A rounding is 2^-24 of the norm. Before the first of five steps it grows 485-fold at most; a
/// product adds up to sqrt(2 n) of them for n terms, n at most 128 here.
constexpr double kBound = 485 * 5 * 16 * 0x1p-24;

Tensor drawn(Arena& arena, int64_t R, int64_t N, const auto& value) {
  const Tensor x = arena.alloc(Mem::Workspace, "x", Dtype::F32, {R, N});
  for (int64_t i = 0; i < R * N; ++i) x.data<float>()[i] = static_cast<float>(value(i / N, i % N));
  return x;
}
Matrix doubled(const Tensor& x) {
  const float* from = x.data<float>();
  return {x.dim(0), x.dim(1), Numbers(from, from + x.size())};
}

/// How far Newton-Schulz of a random matrix (R,N) of this rank is from the definition, by its norm.
double newton_schulz_error(int64_t R, int64_t N, int64_t rank, Dtype dtype) {
  Arena arena;
  const Tensor x = drawn(arena, R, N, [&](int64_t row, int64_t column) {
    double sum = 0;
    for (int64_t k = 0; k < rank; ++k)
      sum += double{noise("left", static_cast<size_t>(row * rank + k))} *
             noise("right", static_cast<size_t>(column * rank + k));
    return sum;
  });
  const Matrix want = orthogonal(doubled(x));
  NewtonSchulz newton_schulz(arena, R * N, std::min(R, N), dtype);
  newton_schulz.orthogonalize(context(arena), x);
  EXPECT_EQ(newton_schulz.counted(), NewtonSchulz::flops(R, N));
  Numbers wrong;
  for (size_t i = 0; i < want.x.size(); ++i) wrong.push_back(x.data<float>()[i] - want.x[i]);
  return norm(wrong) / norm(want.x);
}

// Off by parts of the norm of the update: the lower the rank, the more. The README quotes this.
TEST(Muon, PrecisionOfNewtonSchulz) {
  double before = 0;
  for (const int64_t rank : {128, 16, 4, 1}) {
    const double fp32 = newton_schulz_error(64, 128, rank, Dtype::F32);
    const double bf16 = newton_schulz_error(64, 128, rank, Dtype::BF16);
    fmt::print("(64,128) of rank {}: FP32 off by {:.1e}, BF16 by {:.1e} of the norm\n",
               std::min<int64_t>(rank, 64), fp32, bf16);
    EXPECT_LT(fp32, kBound);
    EXPECT_GT(bf16, std::max(1e-3, before));
    EXPECT_LT(bf16, 2);
    EXPECT_NEAR(newton_schulz_error(128, 64, rank, Dtype::BF16) / bf16, 1, 0.5);
    before = bf16;
  }
}

TEST(Muon, SymmetricToTheBit) {
  Arena arena;
  const Ctx ctx = context(arena);
  constexpr int64_t R = 37, N = 70;
  const Tensor x = drawn(arena, R, N, [](int64_t row, int64_t column) {
    return noise("x", static_cast<size_t>(row * N + column));
  });
  const Tensor a = arena.zeros(Mem::Workspace, "a", Dtype::F32, {R, R});
  const Tensor b = arena.zeros(Mem::Workspace, "b", Dtype::F32, {N, N});
  ctx.kernels->matmul_forward(ctx, a, x, x, {}, kLeaves);
  const Tensor rows = x.view({1, R, N});
  ctx.kernels->matmul_backward_weight(ctx, b, rows, rows, Into::Write);
  for (const Tensor& gram : {a, b}) EXPECT_EQ(doubled(gram).x, turned(doubled(gram)).x);
}

// Singular values s become what five steps of the polynomial make of them.
TEST(Muon, SingularValuesOfADiagonal) {
  Matrix x{16, 24};
  for (int i = 0; i < x.R; ++i) x.at(i, i) = std::pow(0.4, i);
  const double length = norm(x.x);
  const Matrix found = orthogonal(x);
  for (int i = 0; i < x.R; ++i) {
    const double before = x.at(i, i) / length, after = found.at(i, i);
    double p = before;
    for (int step = 0; step < 5; ++step)
      p = 3.4445 * p - 4.7750 * std::pow(p, 3) + 2.0315 * std::pow(p, 5);
    EXPECT_NEAR(after, p, 1e-12);
    EXPECT_TRUE(before < 1.6e-3 || (after > 0.67 && after < 1.21)) << before << " to " << after;
    EXPECT_LT(after, 485 * before);
  }
}

// Of GPT-2 124M at half a million tokens. At most 5 m / tokens, for m columns.
TEST(Muon, ShareOfAStep) {
  const GptConfig gpt = preset("gpt2-124m");
  constexpr int64_t kTokens = 1 << 19;
  int64_t flops = 0, products = 6 * kTokens * gpt.padded_vocab * gpt.channels;
  for (const MuonMatrix& matrix : owned_matrices(ParamLayout(gpt))) {
    flops += matrix.flops();
    products += 6 * kTokens * matrix.size;
  }
  EXPECT_NEAR(static_cast<double>(flops) / static_cast<double>(products), 0.0042, 5e-5);
  EXPECT_LT(flops * kTokens, 5 * gpt.channels * products);
}

// Exercise 6. Owners have at most their share and a matrix. Without them one of 8 ranks has 60% of
// the work of all, and the rank that sends most sends half more.
TEST(Muon, WorkWithOwnersAndWithout) {
  const auto most = [](const nlohmann::json& of) {
    return std::ranges::max(of.get<std::vector<int64_t>>());
  };
  for (const int ranks : {1, 2, 4, 8}) {
    const ParamLayout layout(preset("small"), ranks);
    int64_t all = 0, largest = 0;
    for (const MuonMatrix& matrix : owned_matrices(layout)) {
      all += matrix.flops();
      largest = std::max(largest, matrix.flops());
    }
    const nlohmann::json both = ways(layout), &owners = both["owners"],
                         &without = both["without_owners"];
    EXPECT_LE(most(owners["flops"]), all / ranks + largest);
    EXPECT_TRUE(ranks > 1 || owners == without);
    if (ranks < 8) continue;
    EXPECT_EQ(5 * most(without["flops"]), 3 * all);
    EXPECT_NEAR(
        static_cast<double>(most(without["sent"])) / static_cast<double>(most(owners["sent"])), 1.6,
        0.1);
  }
}

}  // namespace
}  // namespace ladder::test
