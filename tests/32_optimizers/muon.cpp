// Muon on ranks that share flat buffers, beside a reference in double that works on single matrices
// and knows no layout. Mistakes that people have made must be far from it.
#include "chapters/32_optimizers/muon.h"

#include <cmath>
#include <map>
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

using Matrix = std::vector<double>;  // of R rows

double noise(const std::string& name, int64_t i) {
  return Random(5, name).normal_pair(static_cast<uint64_t>(i / 2))[static_cast<size_t>(i % 2)];
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

/// The definition, in double: m rows, n columns, and the Gram matrix of rows.
Matrix orthogonal(Matrix x, int64_t R, int64_t N) {
  const auto turned = [](const Matrix& a, int64_t rows, int64_t columns) {
    Matrix t(a.size());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        t[static_cast<size_t>(c * rows + r)] = a[static_cast<size_t>(r * columns + c)];
    return t;
  };
  const auto product = [](const Matrix& a, const Matrix& b, int64_t m, int64_t k, int64_t n) {
    Matrix out(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < n; ++j)
          out[static_cast<size_t>(i * n + j)] +=
              a[static_cast<size_t>(i * k + l)] * b[static_cast<size_t>(l * n + j)];
    return out;
  };
  if (R > N) return turned(orthogonal(turned(x, R, N), N, R), N, R);
  double norm = 0;
  for (const double v : x) norm += v * v;
  for (double& v : x) v /= std::max(std::sqrt(norm), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const Matrix a = product(x, turned(x, R, N), R, N, R), aa = product(a, a, R, R, R);
    Matrix b(a.size());
    for (size_t i = 0; i < a.size(); ++i) b[i] = -4.7750 * a[i] + 2.0315 * aa[i];
    const Matrix bx = product(b, x, R, R, N);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] + bx[i];
  }
  return x;
}

/// Which rows of a fused matrix belong together, by the text of the layout.
std::vector<std::vector<int64_t>> rows_of(const GptConfig& gpt, const ParamSpec& spec,
                                          Mistake mistake) {
  const int64_t R = spec.shape.dims[0], HS = gpt.head_size(), r = gpt.heads / gpt.groups();
  std::vector<std::vector<int64_t>> parts;
  for (int64_t row = 0; row < R; ++row) {
    size_t part = 0;
    if (spec.role == Role::Qkv) {
      const int64_t head = row / HS % (r + 2);
      part = head < r ? 0 : static_cast<size_t>(head - r + 1);
    }
    if (spec.role == Role::GateUp) part = static_cast<size_t>(row % 2);
    if (mistake == Mistake::Unsplit) part = 0;
    parts.resize(std::max(parts.size(), part + 1));
    parts[part].push_back(row);
  }
  return parts;
}

/// u becomes the scaled update of one parameter.
void update(const GptConfig& gpt, const ParamSpec& spec, Matrix& u, Mistake mistake) {
  const int64_t N = spec.shape.dims[1];
  for (std::vector<int64_t> rows : rows_of(gpt, spec, mistake)) {
    std::vector<std::vector<int64_t>> pieces{rows};
    if (mistake == Mistake::HalfReduced) {
      const auto half = rows.begin() + std::ssize(rows) / 2;
      pieces = {{rows.begin(), half}, {half, rows.end()}};
    }
    for (const std::vector<int64_t>& piece : pieces) {
      const int64_t R = std::ssize(piece);
      Matrix x(static_cast<size_t>(R * N));
      const auto at = [&](int64_t i, int64_t c) {
        return static_cast<size_t>(mistake == Mistake::Transposed ? c * R + i : i * N + c);
      };
      for (int64_t i = 0; i < R; ++i)
        for (int64_t c = 0; c < N; ++c)
          x[at(i, c)] = u[static_cast<size_t>(piece[static_cast<size_t>(i)] * N + c)];
      x = orthogonal(x, R, N);
      const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(R, N)));
      for (int64_t i = 0; i < R; ++i)
        for (int64_t c = 0; c < N; ++c)
          u[static_cast<size_t>(piece[static_cast<size_t>(i)] * N + c)] = scale * x[at(i, c)];
    }
  }
}

/// No token goes to this expert.
bool is_idle(const std::string& name) { return name.find("experts.3.") != std::string::npos; }

double gradient(const std::string& name, int t, int half, int64_t i) {
  if (is_idle(name)) return 0;
  return static_cast<float>(noise(name + std::to_string(2 * t + half), i) * 0x1p-4);
}

/// One parameter after all updates.
Matrix reference(const GptConfig& gpt, const ParamSpec& spec, Mistake mistake) {
  const auto n = static_cast<size_t>(spec.shape.size());
  Matrix w(n), m(n), v(n);
  for (size_t i = 0; i < n; ++i)
    w[i] = static_cast<float>(noise(spec.name, static_cast<int64_t>(i)));
  const double decay = kAdamW.decay_of(spec), beta = kMuon.momentum;
  const bool muon = is_muon(spec) || (mistake == Mistake::HeadToo && spec.role == Role::Head);
  const bool twice = muon && mistake == Mistake::EachMicroBatch;
  for (int t = 0; t < kUpdates; ++t)
    for (int half = 0; half < (twice ? 2 : 1); ++half) {
      Matrix u(n), g(n);
      for (size_t i = 0; i < n; ++i) {
        const auto at = static_cast<int64_t>(i);
        g[i] =
            twice
                ? gradient(spec.name, t, half, at)
                : static_cast<float>(gradient(spec.name, t, 0, at) + gradient(spec.name, t, 1, at));
        const double keep = muon ? beta : double{kAdamW.beta1};
        m[i] = keep * m[i] + (mistake == Mistake::Moonlight ? 1 : 1 - keep) * g[i];
        v[i] = kAdamW.beta2 * v[i] + (1 - double{kAdamW.beta2}) * g[i] * g[i];
        u[i] = beta * m[i] + (1 - beta) * g[i];
      }
      if (muon) update(gpt, spec, u, mistake);
      const int64_t R = spec.shape.dims[0], N = muon ? spec.shape.dims[1] : 1;
      const double scale = mistake == Mistake::ScaledDecay && muon
                               ? 0.2 * std::sqrt(static_cast<double>(std::max(R, N)))
                               : 1;
      for (size_t i = 0; i < n; ++i) {
        w[i] *= 1 - kLr * scale * decay;
        const double mh = m[i] / (1 - std::pow(double{kAdamW.beta1}, t + 1));
        const double vh = v[i] / (1 - std::pow(double{kAdamW.beta2}, t + 1));
        w[i] -= kLr * (muon ? u[i] : mh / (std::sqrt(vh) + kAdamW.eps));
      }
    }
  return w;
}

/// All parameters after the same updates by class Muon, gathered from its ranks.
std::map<std::string, std::vector<float>> on_ranks(const GptConfig& gpt, int ranks) {
  std::vector<std::map<std::string, std::vector<float>>> made(static_cast<size_t>(ranks));
  const ParamLayout layout(gpt, ranks);
  const auto body = [&](Comm& comm) {
    const ParamLayout shard = layout.shard(comm.rank());
    Arena arena;
    const Ctx ctx = context(arena);
    const Flat params = shard.own(arena.zeros(Mem::Param, "w", Dtype::F32, {shard.size()}));
    const Flat grads = shard.own(arena.zeros(Mem::Grad, "g", Dtype::F32, {shard.size()}));
    Muon muon(arena, shard, kAdamW, kMuon, comm);
    const auto fill = [&](const Flat& flat_, const auto& value) {
      for (const ParamSpec& spec : shard.specs())
        for (int64_t i = 0; i < spec.part.size(); ++i)
          shard.tensor(flat_, spec).data<float>()[i] =
              static_cast<float>(value(spec.name, spec.part.begin + i));
    };
    fill(params, noise);
    for (int t = 0; t < kUpdates; ++t) {
      fill(grads, [&](const std::string& name, int64_t i) {
        return gradient(name, t, 0, i) + gradient(name, t, 1, i);
      });
      muon.step(ctx, params, grads, kLr, kLr, t + 1);
    }
    for (const ParamSpec& spec : shard.specs()) {
      const float* w = shard.tensor(params, spec).data<float>();
      made[static_cast<size_t>(comm.rank())][spec.name] = {w, w + spec.part.size()};
    }
  };
  run_threads(ranks, body);
  std::map<std::string, std::vector<float>> all;
  for (const auto& of_rank : made)
    for (const auto& [name, part] : of_rank)
      all[name].insert(all[name].end(), part.begin(), part.end());
  return all;
}

/// How far the parameters are from the reference: the largest share of an update's norm.
double distance(const GptConfig& gpt, const std::map<std::string, std::vector<float>>& got,
                Mistake mistake) {
  double most = 0;
  const ParamLayout layout(gpt);
  for (const ParamSpec& spec : layout.specs()) {
    const Matrix want = reference(gpt, spec, mistake);
    double wrong = 0, all = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double moved = want[i] - static_cast<float>(noise(spec.name, static_cast<int64_t>(i)));
      wrong += std::pow(want[i] - double{got.at(spec.name)[i]}, 2);
      all += moved * moved;
    }
    most = std::max(most, std::sqrt(wrong / all));
  }
  return most;
}

/// A rounding is 2^-24 of the norm. Before the first of five steps it grows 485-fold at most; a
/// product adds up to sqrt(2 n) of them for n terms, n at most 128 here.
constexpr double kBound = 485 * 5 * 16 * 0x1p-24;

TEST(Muon, IsTheDefinitionOnAnyRanks) {
  for (const char* name : {"nano", "llama-nano", "moe-nano"}) {
    const GptConfig gpt = model(name);
    const auto one = on_ranks(gpt, 1);
    EXPECT_LT(distance(gpt, one, Mistake::None), kBound) << name;
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

TEST(Muon, AnExpertWithoutTokensStillDecays) {
  int idle = 0;
  for (const auto& [name, got] : on_ranks(model("moe-nano"), 2)) {
    if (!is_idle(name)) continue;
    ++idle;
    for (size_t i = 0; i < got.size(); ++i) {
      auto w = static_cast<float>(noise(name, static_cast<int64_t>(i)));
      for (int t = 0; t < kUpdates; ++t) w *= 1 - kLr * kAdamW.weight_decay;
      ASSERT_EQ(got[i], w) << name;
    }
  }
  EXPECT_EQ(idle, 2);
}

/// How far Newton-Schulz of a random matrix (R,N) of this rank is from the definition, by its norm.
double newton_schulz_error(int64_t R, int64_t N, int64_t rank, Dtype dtype) {
  Arena arena;
  const Ctx ctx = context(arena);
  NewtonSchulz newton_schulz(arena, R * N, std::min(R, N), dtype);
  const Tensor x = arena.alloc(Mem::Workspace, "x", Dtype::F32, {R, N});
  Matrix m(static_cast<size_t>(R * N));
  for (int64_t i = 0; i < R * N; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < rank; ++k)
      sum += noise("left", i / N * rank + k) * noise("right", i % N * rank + k);
    m[static_cast<size_t>(i)] = x.data<float>()[i] = static_cast<float>(sum);
  }
  m = orthogonal(m, R, N);
  newton_schulz.orthogonalize(ctx, x);
  double wrong = 0, all = 0;
  for (size_t i = 0; i < m.size(); ++i) {
    wrong += std::pow(x.data<float>()[i] - m[i], 2);
    all += m[i] * m[i];
  }
  return std::sqrt(wrong / all);
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
  const Tensor x = arena.zeros(Mem::Workspace, "x", Dtype::F32, {R, N});
  const Tensor a = arena.zeros(Mem::Workspace, "a", Dtype::F32, {R, R});
  const Tensor b = arena.zeros(Mem::Workspace, "b", Dtype::F32, {N, N});
  for (int64_t i = 0; i < R * N; ++i) x.data<float>()[i] = static_cast<float>(noise("x", i));
  ctx.kernels->matmul_forward(ctx, a, x, x, {}, kLeaves);
  const Tensor row = x.view({1, R, N});
  ctx.kernels->matmul_backward_weight(ctx, b, row, row, Into::Write);
  for (const Tensor& gram : {a, b})
    for (int64_t n = gram.dim(0), i = 0; i < n; ++i)
      for (int64_t j = 0; j < i; ++j)
        ASSERT_EQ(gram.data<float>()[i * n + j], gram.data<float>()[j * n + i]) << i << " " << j;
}

// Singular values s become what five steps of the polynomial make of them.
TEST(Muon, SingularValuesOfADiagonal) {
  Arena arena;
  const Ctx ctx = context(arena);
  NewtonSchulz newton_schulz(arena, 16 * 24, 16);
  for (const bool wide : {true, false}) {
    const Tensor x =
        arena.zeros(Mem::Workspace, "x", Dtype::F32, wide ? Shape{16, 24} : Shape{24, 16});
    const auto diagonal = [&](int64_t i) -> float& { return x.data<float>()[i * x.dim(1) + i]; };
    std::vector<double> s(16);
    double norm = 0;
    for (size_t i = 0; i < 16; ++i) {
      s[i] = std::pow(0.4, static_cast<double>(i));
      norm += s[i] * s[i];
      diagonal(static_cast<int64_t>(i)) = static_cast<float>(s[i]);
    }
    newton_schulz.orthogonalize(ctx, x);
    for (size_t i = 0; i < 16; ++i) {
      double p = s[i] / std::sqrt(norm);
      const double before = p;
      for (int step = 0; step < 5; ++step)
        p = 3.4445 * p - 4.7750 * std::pow(p, 3) + 2.0315 * std::pow(p, 5);
      EXPECT_NEAR(diagonal(static_cast<int64_t>(i)), p, 1e-4);
      EXPECT_TRUE(before < 1.6e-3 || (p > 0.67 && p < 1.21)) << before << " to " << p;
      EXPECT_LT(p, 485 * before);
    }
  }
  EXPECT_EQ(newton_schulz.counted(), 2 * NewtonSchulz::flops(16, 24));
}

std::vector<int64_t> numbers(const nlohmann::json& of) { return of.get<std::vector<int64_t>>(); }

TEST(Muon, OwnersHaveLikeWork) {
  for (const int ranks : {1, 2, 4, 8}) {
    const ParamLayout layout(preset("small"), ranks);
    int64_t all = 0, largest = 0;
    for (const MuonMatrix& matrix : owned_matrices(layout)) {
      all += matrix.flops();
      largest = std::max(largest, matrix.flops());
    }
    EXPECT_LE(std::ranges::max(numbers(owners_work(layout)["flops"])), all / ranks + largest);
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

// Exercise 5: of 8 ranks, one has 60% of the work of all, where owners have at most their share and
// a matrix.
TEST(Muon, WithoutOwnersARankHasMostOfTheWork) {
  const ParamLayout layout(preset("small"), 8);
  const auto owners = owners_work(layout), without = work_without_owners(layout);
  fmt::print("8 ranks, owners: {}\nwithout: {}\n", owners.dump(), without.dump());
  int64_t one = 0;
  for (const int64_t flops : numbers(owners["flops"])) one += flops;
  EXPECT_EQ(5 * std::ranges::max(numbers(without["flops"])), 3 * one);
  // The bytes of the rank that sends most: half more.
  const auto most = [&](const nlohmann::json& of) {
    return static_cast<double>(std::ranges::max(numbers(of["sent"])));
  };
  EXPECT_NEAR(most(without) / most(owners), 1.6, 0.1);
  const ParamLayout alone(preset("small"));
  EXPECT_EQ(owners_work(alone), work_without_owners(alone));
}

}  // namespace
}  // namespace ladder::test
