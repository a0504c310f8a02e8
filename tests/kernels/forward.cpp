// Forward operations of `ref` in double, against their formulas, where a fresh model hardly shows a
// fault: its activations and scores are small. The others: PyTorch's runs in tests/golden.
#include <algorithm>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

using Forward = RefInDouble;

TEST_F(Forward, Norm) {
  const Tensor inp = box.empty({1, 1, 3}), out = box.empty({1, 1, 3});
  const Tensor mean = box.empty({1, 1}), rstd = box.empty({1, 1});
  const Tensor w = box.random({3}), b = box.random({3});
  const double x[] = {1, 3, 8};  // mean 4, variance (9 + 1 + 16) / 3
  for (int c = 0; c < 3; ++c) set(inp, c, x[c]);
  k.norm_forward(ctx, out, mean, rstd, inp, w, b);
  EXPECT_EQ(at(mean, 0), 4);
  EXPECT_NEAR(at(rstd, 0), 1 / std::sqrt(26.0 / 3 + 1e-5), 1e-15);
  for (int c = 0; c < 3; ++c)
    EXPECT_NEAR(at(out, c), (x[c] - 4) * at(rstd, 0) * at(w, c) + at(b, c), 1e-15);
}

TEST_F(Forward, RmsNorm) {
  const int64_t C = 5;
  // So small that epsilon counts.
  const Tensor inp = box.random({1, 1, C}, -4e-3, 4e-3), out = box.empty({1, 1, C}),
               w = box.random({C});
  const Tensor rstd = box.empty({1, 1}), b = box.random({C});
  double squares = 0;
  for (int64_t c = 0; c < C; ++c) squares += at(inp, c) * at(inp, c);
  for (const Tensor& bias : {Tensor{}, b}) {
    k.norm_forward(ctx, out, Tensor{}, rstd, inp, w, bias);
    EXPECT_NEAR(at(rstd, 0), 1 / std::sqrt(squares / C + 1e-5), 1e-11);
    EXPECT_GT(std::abs(at(rstd, 0) - 1 / std::sqrt(squares / C + 1e-4)), 20);  // another epsilon
    EXPECT_GT(std::abs(at(rstd, 0) - 1 / std::sqrt(squares / C + 1e-6)), 20);
    for (int64_t c = 0; c < C; ++c)
      EXPECT_NEAR(at(out, c), at(inp, c) * at(rstd, 0) * at(w, c) + (bias ? at(b, c) : 0), 1e-15);
  }
}

TEST_F(Forward, Swiglu) {
  const int64_t rows = 6, F = 7;
  const Tensor inp = box.random({rows, 2 * F}, -4, 4), out = box.empty({rows, F});
  const Tensor swapped = box.empty({rows, F});
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  k.swiglu_forward(ctx, out, inp);
  for (int64_t i = 0; i < rows * F; ++i) {
    EXPECT_NEAR(at(out, i), silu(at(inp, 2 * i)) * at(inp, 2 * i + 1), 1e-14);
    set(swapped, i, at(inp, 2 * i) * silu(at(inp, 2 * i + 1)));
  }
  EXPECT_GT(relative_error(out, swapped), 0.1);
  // PyTorch's silu.
  const double x[] = {1, -1, 3, 0.5}, want[] = {0.7310585786300049, -0.2689414213699951,
                                                2.8577223804673, 0.3112296656009273};
  for (int i = 0; i < 4; ++i) set(inp, 2 * i, x[i]), set(inp, 2 * i + 1, 1);
  k.swiglu_forward(ctx, out, inp);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(at(out, i), want[i], 1e-13);
}

TEST_F(Forward, GeluAtKnownPoints) {
  // PyTorch's gelu(approximate='tanh').
  const double x[] = {1, -1, 3, 0.5}, want[] = {0.8411919906082768, -0.15880800939172324,
                                                2.996362607918227, 0.34571400982514394};
  const Tensor inp = box.empty({4}), out = box.empty({4});
  for (int i = 0; i < 4; ++i) set(inp, i, x[i]);
  k.gelu_forward(ctx, out, inp);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(at(out, i), want[i], 1e-15);
}

TEST_F(Forward, AttentionHeadByHead) {
  const int64_t B = 2, T = 5, NH = 3, HS = 4, C = NH * HS;
  const Tensor qkv = box.random({B, T, 3 * C}, -2, 2), out = box.empty({B, T, C});
  const Tensor lse = box.empty({B, NH, T});
  k.attention_forward(ctx, out, lse, qkv);
  const auto column = [&](int64_t b, int64_t t, int64_t h, int which, int64_t d) {
    return at(qkv, (b * T + t) * 3 * C + (3 * h + which) * HS + d);
  };
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < NH; ++h)
      for (int64_t t = 0; t < T; ++t) {
        double sum = 0, value[HS] = {};
        for (int64_t u = 0; u <= t; ++u) {
          double score = 0;
          for (int64_t d = 0; d < HS; ++d) score += column(b, t, h, 0, d) * column(b, u, h, 1, d);
          const double weight = std::exp(score / std::sqrt(HS));
          sum += weight;
          for (int64_t d = 0; d < HS; ++d) value[d] += weight * column(b, u, h, 2, d);
        }
        EXPECT_NEAR(at(lse, (b * NH + h) * T + t), std::log(sum), 1e-14);
        for (int64_t d = 0; d < HS; ++d)
          EXPECT_NEAR(at(out, (b * T + t) * C + h * HS + d), value[d] / sum, 1e-14);
      }
}

TEST_F(Forward, CrossEntropyIgnoresAndMasks) {
  const Tensor logits = box.random({2, 3, 16}), targets = box.tokens({2, 3}, 7);
  for (int t = 0; t < 3; ++t) targets.data<int32_t>()[t] = kIgnore;
  for (int64_t row = 0; row < 6; ++row)
    for (int64_t v = 7; v < 16; ++v) set(logits, row * 16 + v, 1e300);  // padding: never read
  const Tensor losses = box.empty({2}), dlogits = box.empty({2, 3, 16});
  k.cross_entropy(ctx, losses, dlogits, logits, targets, 7, 1);
  EXPECT_EQ(at(losses, 0), 0);
  EXPECT_GT(at(losses, 1), 0);
  for (int64_t i = 0; i < dlogits.size(); ++i)
    EXPECT_EQ(at(dlogits, i) == 0, i < 3 * 16 || i % 16 >= 7) << i;
}

/// Heads of HS channels, NKV groups of r queries, a key and a value each.
struct Heads {
  int64_t B, T, NKV, r, HS;
  int64_t heads() const { return NKV * (r + 2); }
  Shape shape() const { return {B, T, heads() * HS}; }
  bool is_value(int64_t head) const { return head % (r + 2) == r + 1; }
};
constexpr Heads kHeads[] = {{1, 3, 1, 1, 2}, {2, 5, 2, 3, 6}, {2, 4, 3, 1, 8}};

/// rope by its definition. The two numbers of a pair are `apart`: HS / 2, or 1 as in the paper.
void turn(const Tensor& x, const Tensor& angles, const Heads& s, int64_t apart) {
  for (int64_t head = 0; head < s.B * s.T * s.heads(); ++head) {
    if (s.is_value(head % s.heads())) continue;
    const int64_t t = head / s.heads() % s.T;
    for (int64_t i = 0; i < s.HS / 2; ++i) {
      const int64_t first = head * s.HS + (apart == 1 ? 2 * i : i), second = first + apart;
      const double a = at(x, first), b = at(x, second);
      const double cos = at(angles, t * s.HS + i), sin = at(angles, t * s.HS + s.HS / 2 + i);
      set(x, first, a * cos - b * sin);
      set(x, second, b * cos + a * sin);
    }
  }
}

TEST_F(Forward, Rope) {
  for (const Heads& s : kHeads) {
    const Tensor angles = box.angles(s.T + 1, s.HS), before = box.random(s.shape());
    const Tensor got = box.copy(before), want = box.copy(before), paper = box.copy(before);
    k.rope(ctx, got, angles, s.NKV * s.r, false);
    turn(want, angles, s, s.HS / 2);
    turn(paper, angles, s, 1);
    EXPECT_LT(relative_error(got, want), 1e-15);
    EXPECT_EQ(relative_error(got, paper) > 0.1, s.HS > 2) << "neighbors";
    EXPECT_GT(relative_error(got, before), 0.1);
    k.rope(ctx, got, angles, s.NKV * s.r, true);
    EXPECT_LT(relative_error(got, before), 1e-6) << "back";  // cosines and sines are rounded
  }
}

}  // namespace
}  // namespace ladder::test
