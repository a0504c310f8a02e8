// Routers and experts against `ref`: choices and rows exactly, the rest within rounding. Sizes
// around what a block takes, an expert without tokens, dropped tokens.
#include "tests/kernels/experts.h"

#include <array>
#include <cmath>
#include <string>

#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

struct Sizes {
  int64_t B, T, E, takes, C;
};
constexpr Sizes kSizes[] = {{1, 1, 1, 1, 1},     {2, 7, 5, 3, 9},   {3, 100, 4, 3, 40},
                            {2, 130, 33, 4, 16}, {2, 9, 21, 7, 16}, {1, 5, 40, 11, 8},
                            {2, 40, 70, 9, 133}, {3, 300, 8, 2, 17}};

/// The rows of experts: on the device, and those of `ref`.
struct BothRows {
  ExpertRows device, want;
};

class Experts : public VsRef {
 protected:
  static void expect_same(const Tensor& device, const Tensor& want, const char* what) {
    EXPECT_TRUE(same_bits(down(device), want)) << what;
  }
  BothRows rows_of(const Tensor& expert, int64_t E, int64_t capacity) {
    const BothRows rows{{.offsets = share(host.zeros(Dtype::I32, {E + 1})),
                         .row = up(host.tokens(expert.shape, 3)),
                         .from = out(Dtype::I32, {expert.size()})},
                        sorted(host, expert, E, capacity)};
    k.expert_rows(ctx, rows.device, up(expert), capacity);
    return rows;
  }
};

TEST_F(Experts, Route) {
  for (const auto& [B, T, E, takes, C] : kSizes)
    for (const RouteRule rule : {RouteRule{false, true}, {true, false}, {true, true}}) {
      const Tensor logits = host.random({B, T, E}, -3, 3), bias = host.random({E}, -0.1, 0.1);
      const Tensor expert = out(Dtype::I32, {B, T, takes}), load = out(Dtype::I32, {B, E});
      const Tensor weight = out(Dtype::F32, {B, T, takes}), scores = out(Dtype::F32, {B, T, E});
      const Tensor losses = out(Dtype::F32, {2, B}), dlogits = out(Dtype::F32, {B, T, E});
      const Routed want = route(exact, wide(logits), takes, wide(bias), rule);
      k.route_forward(ctx, expert, weight, scores, load, losses, up(logits), up(bias), rule);
      expect_same(expert, want.expert, "expert");
      expect_same(load, want.load, "load");
      const auto rounded = [E = E](const Tensor& x, double roundings) {
        return [=](int64_t i) { return kRound * (roundings + double(E)) * std::abs(at(x, i)); };
      };
      // An exponential, a sum over experts, quotients; a sum over tokens.
      expect_near("scores", scores, want.scores, rounded(want.scores, 12));
      expect_near("weight", weight, want.weight, rounded(want.weight, 24));
      expect_near("losses", losses, want.losses, rounded(want.losses, 40 + double(T + E)));
      const Tensor dweight = host.random({B, T, takes}), dwant = exact.empty({B, T, E});
      ref.route_backward(exact.ctx(), dwant, wide(dweight), want.expert, want.scores, want.load,
                         wide(logits), rule, 0.5, 0.25);
      k.route_backward(ctx, dlogits, up(dweight), expert, scores, load, up(logits), rule, 0.5,
                       0.25);
      // Differences of terms of size 1 / the sum of the chosen scores: not below 1 / 40 here.
      expect_near("dlogits", dlogits, dwant,
                  [E = E](int64_t) { return 40 * kRound * (40 + 2 * double(E)); });
    }
}

TEST_F(Experts, TiesAndNaN) {
  const int64_t T = 3, E = 40, takes = 3;
  const Tensor logits = host.filled({1, T, E}, 1);
  for (int64_t e : {7, 30}) set(logits, E + e, 2);
  set(logits, 2 * E + 35, NAN);
  const Tensor expert = out(Dtype::I32, {1, T, takes}), weight = out(Dtype::F32, {1, T, takes});
  const Tensor losses = out(Dtype::F32, {2, 1});
  k.route_forward(ctx, expert, weight, out(Dtype::F32, {1, T, E}), out(Dtype::I32, {1, E}), losses,
                  up(logits), {}, {true, false});
  const Tensor found = down(expert);
  const std::array<int32_t, 9> want = {0, 1, 2, 0, 7, 30, 0, 1, 35};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(found.data<int32_t>()[i], want[i]) << i;
  EXPECT_TRUE(std::isnan(at(down(weight), 8)));
  EXPECT_TRUE(std::isnan(at(down(losses), 0)) && std::isnan(at(down(losses), 1)));
}

TEST_F(Experts, Rows) {
  for (const auto& [B, T, E, takes, C] : kSizes)
    for (const int64_t capacity : {0, 1, 20})
      for (const bool elsewhere : {false, true}) {
        const Tensor expert = choices(host, B, T, takes, E);
        for (int64_t i = 1; elsewhere && i < expert.size(); i += 5)
          expert.data<int32_t>()[i] = kElsewhere;
        const auto [device, want] = rows_of(expert, E, capacity);
        expect_same(device.offsets, want.offsets, "offsets");
        expect_same(device.row, want.row, "row");
        expect_same(down(device.from).first(used(want)), want.from.first(used(want)), "from");
      }
}

TEST_F(Experts, GatherAndCombine) {
  for (const Dtype dtype : kReals)
    for (const auto& [B, T, E, takes, C] : kSizes) {
      const Tensor expert = choices(host, B, T, takes, E), x = host.random(dtype, {B, T, C});
      const auto [device, want] = rows_of(expert, E, T / 2 + 1);
      const int64_t M = expert.size();
      const Tensor y = host.random(dtype, {M, C}), weight = host.random({B, T, takes}, -1, 1);
      const Tensor got = up(y), rows = host.copy(y);
      k.gather_rows(ctx, got, up(x), device);
      host.kernels().gather_rows(host.ctx(), rows, x, want);
      expect_same(got, rows, "gathered");
      for (const Tensor& w : {weight, Tensor{}})
        for (const Dtype of : {dtype, Dtype::F32}) {
          const Tensor sum = out(of, {B, T, C}), sums = exact.empty({B, T, C});
          const Tensor terms = exact.empty({B, T, C});
          k.unpermute_forward(ctx, sum, up(y), device, up(expert), up(w));
          ref.unpermute_forward(exact.ctx(), sums, wide(y), want, expert, wide(w));
          ref.unpermute_forward(exact.ctx(), terms, size(y), want, expert, size(w));
          expect_near("combined", sum, sums, [&](int64_t i) { return 4 * kRound * at(terms, i); });
          const Tensor tree = host.empty(of, {B, T, C});  // the same order of sums
          host.kernels().unpermute_forward(host.ctx(), tree, y, want, expert, w);
          expect_same(sum, tree, "combined");
        }
      const Tensor dout = host.random(dtype, {B, T, C}), dy = up(y), dys = wide(y);
      const Tensor dweight = out(Dtype::F32, weight.shape), dweights = exact.empty(weight.shape);
      k.unpermute_backward(ctx, dy, dweight, up(dout), up(y), device, up(weight));
      ref.unpermute_backward(exact.ctx(), dys, dweights, wide(dout), wide(y), want, wide(weight));
      expect_near("dy", dy, dys, [](int64_t) { return 2 * kRound; });
      expect_near("dweight", dweight, dweights,
                  [C = C](int64_t) { return kRound * (double(C) / 16 + 8) * double(C); });
    }
}

TEST_F(Experts, Products) {
  const int64_t N = 24, K = 40, E = 4;
  for (const Dtype dtype : kReals) {
    const Tensor expert = choices(host, 2, 30, 2, E - 1);  // the last one has no tokens
    const auto [device, want] = rows_of(expert, E, 12);
    const int64_t M = expert.size();
    ASSERT_LT(used(want), M);
    const Tensor inp = host.random(dtype, {M, K}), dout = host.random(dtype, {M, N});
    const Tensor w = host.random(dtype, {E, N, K});
    const Tensor y = host.filled(dtype, {M, N}, 7), dx = host.filled(dtype, {M, K}, 7);
    const Tensor got = up(y), dgot = up(dx), ys = wide(y), dxs = wide(dx);
    k.grouped_matmul_forward(ctx, got, up(inp), up(w), device, 1);
    k.grouped_matmul_backward_input(ctx, dgot, up(dout), up(w), device, 1);
    ref.grouped_matmul_forward(exact.ctx(), ys, wide(inp), wide(w), want, 1);
    ref.grouped_matmul_backward_input(exact.ctx(), dxs, wide(dout), wide(w), want, 1);
    const auto sum_of = [](int64_t n) { return [=](int64_t) { return kRound * double(n * n); }; };
    expect_near("out", got, ys, sum_of(K));
    expect_near("dinp", dgot, dxs, sum_of(N));
    for (const Into into : {Into::Write, Into::Add}) {
      const Tensor before = host.random({E, N, K}), dw = up(before), dws = wide(before);
      k.grouped_matmul_backward_weight(ctx, dw, up(dout), up(inp), device, into);
      ref.grouped_matmul_backward_weight(exact.ctx(), dws, wide(dout), wide(inp), want, into);
      expect_near("dw", dw, dws, sum_of(60));
    }
  }
}

}  // namespace
}  // namespace ladder::test
