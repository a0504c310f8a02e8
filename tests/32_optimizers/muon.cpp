// Muon on ranks that share flat buffers, beside a reference in double that works on single matrices
// and knows no layout. Mistakes that people have made must be far from it.
#include "chapters/32_optimizers/muon.h"

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/comm/run_ranks.h"
#include "common/comm/self_comm.h"
#include "common/model/config.h"
#include "common/random.h"
#include "kernels/kernels.h"

namespace ladder::test {
namespace {

enum class Mistake : uint8_t {
  None,
  HalfReduced,     // each of two shards orthogonalises what it has of a matrix
  EachMicroBatch,  // an update for each half of the gradient
  Transposed,      // of a fused matrix, columns are taken for rows
  HeadToo,         // the head is a matrix like others
  Unsplit,         // Q, K, V, or gate and up, are one matrix
  ScaledDecay,     // the decay has the scale of the update
  Moonlight,       // m = beta m + g, read as if it were the lerp
};

constexpr float kLr = 0.02f;
constexpr int kUpdates = 3;
const AdamWOptions kAdamW{};
const MuonOptions kMuon{};

using Numbers = std::vector<double>;
using Params = std::map<std::string, std::vector<float>>;

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

GptConfig model(const char* name) {
  GptConfig gpt = preset(name);
  gpt.layers = 1;
  gpt.channels = 16;
  gpt.heads = 4;
  return gpt;
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

/// The elements of each matrix that is orthogonalised by itself, by the text of the layout.
std::vector<std::vector<size_t>> pieces_of(const GptConfig& gpt, const ParamSpec& spec,
                                           Mistake mistake) {
  const int64_t R = spec.shape.dims[0], N = spec.shape.dims[1], HS = gpt.head_size(),
                r = gpt.heads / gpt.groups();
  std::vector<std::vector<size_t>> pieces(6);
  for (int64_t i = 0; i < R * N; ++i) {
    const bool columns = mistake == Mistake::Transposed;
    const int64_t row = columns ? i % R : i / N, column = columns ? i / R : i % N;
    int64_t piece = 0;
    if (spec.role == Role::Qkv) piece = std::max(row / HS % (r + 2) - r + 1, int64_t{0});
    if (spec.role == Role::GateUp) piece = row % 2;
    if (mistake == Mistake::Unsplit) piece = 0;
    if (mistake == Mistake::HalfReduced && 2 * i >= R * N) piece += 3;
    pieces[static_cast<size_t>(piece)].push_back(static_cast<size_t>(row * N + column));
  }
  std::erase_if(pieces, [](const auto& piece) { return piece.empty(); });
  return pieces;
}

double scale_of(int64_t R, int64_t N) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(R, N)));
}

/// u becomes the scaled update of one parameter.
void update(const GptConfig& gpt, const ParamSpec& spec, Numbers& u, Mistake mistake) {
  const int64_t N = spec.shape.dims[1];
  for (const std::vector<size_t>& piece : pieces_of(gpt, spec, mistake)) {
    Matrix x{std::ssize(piece) / N, N};
    for (size_t i = 0; i < piece.size(); ++i) x.x[i] = u[piece[i]];
    x = orthogonal(x);
    for (size_t i = 0; i < piece.size(); ++i) u[piece[i]] = scale_of(x.R, N) * x.x[i];
  }
}

/// No token goes to this expert.
bool is_idle(const std::string& name) { return name.find("experts.3.") != std::string::npos; }

float gradient(const std::string& name, int t, int half, size_t i) {
  return is_idle(name) ? 0 : noise(name + std::to_string(2 * t + half), i) * 0x1p-4f;
}
float gradient(const std::string& name, int t, size_t i) {
  return gradient(name, t, 0, i) + gradient(name, t, 1, i);
}

/// One parameter after all updates.
Numbers reference(const GptConfig& gpt, const ParamSpec& spec, Mistake mistake) {
  const auto n = static_cast<size_t>(spec.shape.size());
  const bool muon = is_muon(spec) || (mistake == Mistake::HeadToo && spec.role == Role::Head);
  const bool twice = muon && mistake == Mistake::EachMicroBatch;
  const double keep = muon ? kMuon.momentum : kAdamW.beta1;
  const double take = mistake == Mistake::Moonlight ? 1 : 1 - keep;
  const double decay =
      kLr * kAdamW.decay_of(spec) *
      (muon && mistake == Mistake::ScaledDecay ? scale_of(spec.shape.dims[0], spec.shape.dims[1])
                                               : 1);
  Numbers w(n), m(n), v(n), u(n);
  for (size_t i = 0; i < n; ++i) w[i] = noise(spec.name, i);
  for (int k = 0; k < (twice ? 2 : 1) * kUpdates; ++k) {
    for (size_t i = 0; i < n; ++i) {
      const double g = twice ? gradient(spec.name, k / 2, k % 2, i) : gradient(spec.name, k, i);
      m[i] = keep * m[i] + take * g;
      v[i] = kAdamW.beta2 * v[i] + (1 - double{kAdamW.beta2}) * g * g;
      const double mh = m[i] / (1 - std::pow(keep, k + 1));
      const double vh = v[i] / (1 - std::pow(double{kAdamW.beta2}, k + 1));
      u[i] = muon ? keep * m[i] + (1 - keep) * g : mh / (std::sqrt(vh) + kAdamW.eps);
    }
    if (muon) update(gpt, spec, u, mistake);
    for (size_t i = 0; i < n; ++i) w[i] = (1 - decay) * w[i] - kLr * u[i];
  }
  return w;
}

/// All parameters after the same updates by class Muon.
Params on_ranks(const GptConfig& gpt, int ranks) {
  const ParamLayout layout(gpt, ranks);
  Params all;
  for (const ParamSpec& spec : layout.specs())
    all[spec.name].resize(static_cast<size_t>(spec.shape.size()));
  run_threads(ranks, [&](Comm& comm) {
    const ParamLayout shard = layout.shard(comm.rank());
    Arena arena;
    const Ctx ctx = context(arena);
    const Flat params = shard.own(arena.zeros(Mem::Param, "w", Dtype::F32, {shard.size()}));
    const Flat grads = shard.own(arena.zeros(Mem::Grad, "g", Dtype::F32, {shard.size()}));
    Muon muon(arena, shard, kAdamW, kMuon, comm);
    const auto each = [&](const Flat& buffer, const auto& visit) {
      for (const ParamSpec& spec : shard.specs())
        for (int64_t i = 0; i < spec.part.size(); ++i)
          visit(shard.tensor(buffer, spec).data<float>()[i], spec.name,
                static_cast<size_t>(spec.part.begin + i));
    };
    each(params, [](float& w, const auto& name, size_t i) { w = noise(name, i); });
    for (int t = 0; t < kUpdates; ++t) {
      each(grads, [&](float& g, const auto& name, size_t i) { g = gradient(name, t, i); });
      muon.step(ctx, params, grads, kLr, kLr, t + 1);
    }
    each(params, [&](float w, const auto& name, size_t i) { all.at(name)[i] = w; });
  });
  return all;
}

/// How far `got` is from `want`, as a share of `all`.
double distance(const auto& got, const Numbers& want, double all) {
  Numbers wrong;
  for (size_t i = 0; i < want.size(); ++i) wrong.push_back(got[i] - want[i]);
  return norm(wrong) / all;
}

/// How far the parameters are from the reference: the largest share of an update's norm.
double distance(const GptConfig& gpt, const Params& got, Mistake mistake) {
  double most = 0;
  const ParamLayout layout(gpt);
  for (const ParamSpec& spec : layout.specs()) {
    const Numbers want = reference(gpt, spec, mistake);
    Numbers moved = want;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] -= noise(spec.name, i);
    most = std::max(most, distance(got.at(spec.name), want, norm(moved)));
  }
  return most;
}

/// A rounding is 2^-24 of the norm. Before the first of five steps it grows 485-fold at most; a
/// product adds up to sqrt(2 n) of them for n terms, n at most 128 here.
constexpr double kBound = 485 * 5 * 16 * 0x1p-24;

TEST(Muon, IsTheDefinitionOnAnyRanks) {
  for (const char* name : {"nano", "llama-nano", "moe-nano"}) {
    const GptConfig gpt = model(name);
    const Params one = on_ranks(gpt, 1);
    EXPECT_LT(distance(gpt, one, Mistake::None), kBound) << name;
    // An expert without tokens still decays.
    const auto idle = std::ranges::count_if(one, [](const auto& of) { return is_idle(of.first); });
    EXPECT_EQ(idle, gpt.has_experts() ? 2 : 0);
    for (const int ranks : {2, 4, 8}) EXPECT_EQ(on_ranks(gpt, ranks), one) << name << ranks;
  }
}

TEST(Muon, ControlMistakesAreFar) {
  const GptConfig gpt = model("nano");
  const auto got = on_ranks(gpt, 2);
  for (const Mistake mistake :
       {Mistake::HalfReduced, Mistake::EachMicroBatch, Mistake::Transposed, Mistake::HeadToo,
        Mistake::Unsplit, Mistake::ScaledDecay, Mistake::Moonlight})
    EXPECT_GT(distance(gpt, got, mistake), 10 * kBound) << static_cast<int>(mistake);
  const GptConfig llama = model("llama-nano");
  EXPECT_GT(distance(llama, on_ranks(llama, 2), Mistake::Unsplit), 10 * kBound);
}

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
  return distance(x.data<float>(), want.x, norm(want.x));
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
