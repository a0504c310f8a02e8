// Routers and experts of `cpu` against `ref` in double. What only copies or counts is exact.
#include <array>
#include <cmath>

#include "tests/kernels/cpu_vs_ref.h"
#include "tests/kernels/experts.h"

namespace ladder::test {
namespace {

struct Sizes {
  int64_t B, T, E, takes;
};
constexpr Sizes kSizes[] = {{1, 1, 1, 1}, {2, 7, 5, 3}, {3, 300, 8, 2}, {2, 40, 70, 9}};

TEST_F(CpuVsRef, Route) {
  for (const auto& [B, T, E, takes] : kSizes)
    for (const RouteRule rule : {RouteRule{false, true}, {true, false}, {true, true}}) {
      const Tensor logits = fast.random({B, T, E}, -3, 3), bias = fast.random({E}, -0.1, 0.1);
      const Routed got = route(fast, logits, takes, bias, rule);
      const Routed want = route(exact, wide(logits), takes, wide(bias), rule);
      EXPECT_TRUE(same_bits(got.expert, want.expert));
      EXPECT_TRUE(same_bits(got.load, want.load));
      // An exponential, a sum over experts in lanes, quotients; sums over tokens.
      const auto within = [E = E](const Tensor& x, double roundings) {
        const double all = roundings + lane_roundings(E);
        return [=](int64_t i) { return kRound * all * std::abs(at(x, i)); };
      };
      expect_near("scores", got.scores, want.scores, within(want.scores, 6));
      expect_near("weight", got.weight, want.weight, within(want.weight, 20));
      expect_near("losses", got.losses, want.losses,
                  within(want.losses, 30 + sum_roundings(T, 16) + double(E)));
      const Tensor dweight = fast.random({B, T, takes});
      const Tensor dlogits = fast.empty(logits.shape), dwant = exact.empty(logits.shape);
      cpu.route_backward(fast.ctx(), dlogits, dweight, got.expert, got.scores, got.load, logits,
                         rule, 0.5, 0.25);
      ref.route_backward(exact.ctx(), dwant, wide(dweight), want.expert, want.scores, want.load,
                         wide(logits), rule, 0.5, 0.25);
      // Differences of terms of size 1 / the sum of the chosen scores: not below 1 / 40 here.
      expect_near("dlogits", dlogits, dwant,
                  [E = E](int64_t) { return 40 * kRound * (40 + double(E)); });
    }
}

TEST_F(CpuVsRef, RowsOfExperts) {
  for (const auto& [B, T, E, takes] : kSizes)
    for (const int64_t capacity : {0, 1, 20}) {
      const Tensor expert = choices(fast, B, T, takes, E);
      const ExpertRows got = sorted(fast, expert, E, capacity);
      const ExpertRows want = sorted(exact, expert, E, capacity);
      EXPECT_TRUE(same_bits(got.offsets, want.offsets));
      EXPECT_TRUE(same_bits(got.row, want.row));
      EXPECT_TRUE(same_bits(got.from.first(used(want)), want.from.first(used(want))));
    }
}

TEST_F(CpuVsRef, Combine) {
  for (const auto& [B, T, E, takes] : kSizes)
    for (const int64_t C : {1, 17, 133}) {
      const Tensor expert = choices(fast, B, T, takes, E), weight = fast.random({B, T, takes});
      const ExpertRows rows = sorted(fast, expert, E, T / 2 + 1);
      const int64_t M = expert.size();
      const Tensor y = fast.random({M, C}), dout = fast.random({B, T, C});
      const Tensor got = fast.empty(dout.shape), want = exact.empty(dout.shape);
      const Tensor terms = exact.empty(dout.shape), dweight = fast.empty(weight.shape);
      for (const Tensor& w : {weight, Tensor{}}) {
        cpu.combine_forward(fast.ctx(), got, y, rows, expert, w);
        ref.combine_forward(exact.ctx(), want, wide(y), rows, expert, w ? wide(w) : w);
        ref.combine_forward(exact.ctx(), terms, size(y), rows, expert, w ? size(w) : w);
        expect_near("out", got, want, [&](int64_t i) { return kRound * 6 * at(terms, i); });
      }
      const Tensor dy = fast.filled(y.shape, 7), dys = wide(dy),
                   dweights = exact.empty(weight.shape);
      cpu.combine_backward(fast.ctx(), dy, dweight, dout, y, rows, weight);
      ref.combine_backward(exact.ctx(), dys, dweights, wide(dout), wide(y), rows, wide(weight));
      expect_near("dy", dy, dys, [&](int64_t i) { return kRound * std::abs(at(dys, i)); });
      expect_near("dweight", dweight, dweights,
                  [C = C](int64_t) { return kRound * lane_roundings(C) * double(C); });
    }
}

TEST_F(CpuVsRef, ProductsOfExperts) {
  const int64_t B = 2, T = 150, E = 4, takes = 2, N = 60, K = 45;
  const Tensor expert = choices(fast, B, T, takes, E);
  const ExpertRows rows = sorted(fast, expert, E, 100);
  const int64_t M = expert.size();
  const Tensor inp = fast.random({M, K}), dout = fast.random({M, N}), w = fast.random({E, N, K});
  const Tensor out = fast.filled({M, N}, 7), dinp = fast.filled({M, K}, 7), dw = fast.copy(w);
  const Tensor want = wide(out), dwant = wide(dinp), dw_want = wide(dw);
  const auto within = [](int64_t n) {  // terms below 1 in size
    return [=](int64_t) { return kRound * sum_roundings(n, 8) * double(n); };
  };
  cpu.grouped_matmul_forward(fast.ctx(), out, inp, w, rows, 8);
  ref.grouped_matmul_forward(exact.ctx(), want, wide(inp), wide(w), rows, 8);
  expect_near("out", out, want, within(K));
  cpu.grouped_matmul_backward_input(fast.ctx(), dinp, dout, w, rows, 8);
  ref.grouped_matmul_backward_input(exact.ctx(), dwant, wide(dout), wide(w), rows, 8);
  expect_near("dinp", dinp, dwant, within(N));
  cpu.grouped_matmul_backward_weight(fast.ctx(), dw, dout, inp, rows, Into::Add);
  ref.grouped_matmul_backward_weight(exact.ctx(), dw_want, wide(dout), wide(inp), rows, Into::Add);
  expect_near("dw", dw, dw_want, within(B * T));
}

}  // namespace
}  // namespace ladder::test
