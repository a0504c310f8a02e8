// Operations on rows and single elements: norm, attention, GELU, cross-entropy, sums of arrays.
#include <array>

#include "tests/kernels/cpu_vs_ref.h"

namespace ladder::test {
namespace {

struct Batch {
  int64_t B, T, C;
};
constexpr Batch kBatches[] = {{1, 1, 1}, {3, 5, 7}, {2, 9, 17}, {5, 1, 33}, {12, 64, 128}};

TEST_F(CpuVsRef, NormForward) {
  for (const auto& [B, T, C] : kBatches) {
    const Tensor inp = fast.random({B, T, C}, -1, 3), w = fast.random({C}), b = fast.random({C});
    const Tensor out = fast.empty(inp.shape), mean = fast.empty({B, T}), rstd = fast.empty({B, T});
    const Tensor y = exact.empty(inp.shape), m = exact.empty({B, T}), r = exact.empty({B, T});
    cpu.norm_forward(fast.ctx(), out, mean, rstd, inp, w, b);
    ref.norm_forward(exact.ctx(), y, m, r, wide(inp), wide(w), wide(b));
    // d: the error of a mean of values up to 3, hence of a centred value; it changes the variance
    // by at most 2 d / rstd + d^2, and rstd relatively by d rstd (1 + d rstd) and the roundings.
    const double unit = kRound * (lane_roundings(C) + 4);
    const double d = 3 * unit;
    expect_near("mean", mean, m, [&](int64_t) { return d; });
    const auto relative = [&](int64_t row) {
      return d * at(r, row) * (1 + d * at(r, row)) + 2 * unit;
    };
    expect_near("rstd", rstd, r, [&](int64_t row) { return relative(row) * at(r, row); });
    expect_near("out", out, y, [&](int64_t i) {
      const double xhat = std::abs(at(inp, i) - at(m, i / C)) * at(r, i / C);
      const double error = d * at(r, i / C) + (xhat + d * at(r, i / C)) * relative(i / C);
      return std::abs(at(w, i % C)) * error + 4 * kRound * (xhat + 1);
    });
  }
}

TEST_F(CpuVsRef, NormBackwardInput) {
  for (const auto& [B, T, C] : kBatches) {
    const Tensor inp = fast.random({B, T, C}), dout = fast.random({B, T, C});
    const Tensor w = fast.random({C}), mean = fast.random({B, T});
    const Tensor rstd = fast.random({B, T}, 0.5, 2);
    const Tensor got = fast.empty(inp.shape), want = exact.empty(inp.shape);
    cpu.norm_backward_input(fast.ctx(), got, dout, inp, w, mean, rstd);
    ref.norm_backward_input(exact.ctx(), want, wide(dout), wide(inp), wide(w), wide(mean),
                            wide(rstd));
    // |g| <= 1, |xhat| <= 2 rstd: the three terms are at most 1, 1 and (2 rstd)^2.
    const double unit = kRound * (lane_roundings(C) + 6);
    expect_near("dinp", got, want, [&](int64_t i) {
      const double r = at(rstd, i / C);
      return unit * r * (2 + 4 * r * r);
    });
  }
}

TEST_F(CpuVsRef, RmsNorm) {
  for (const auto& [B, T, C] : kBatches) {
    const Tensor inp = fast.random({B, T, C}, -1, 3), w = fast.random({C});
    const Tensor out = fast.empty(inp.shape), rstd = fast.empty({B, T}),
                 dout = fast.random(inp.shape);
    const Tensor y = exact.empty(inp.shape), r = exact.empty({B, T});
    cpu.norm_forward(fast.ctx(), out, Tensor{}, rstd, inp, w, Tensor{});
    ref.norm_forward(exact.ctx(), y, Tensor{}, r, wide(inp), wide(w), Tensor{});
    const double unit = kRound * (lane_roundings(C) + 4);
    expect_near("rstd", rstd, r, [&](int64_t row) { return unit * at(r, row); });
    expect_near("out", out, y, [&](int64_t i) { return (unit + 4 * kRound) * std::abs(at(y, i)); });
    cpu.norm_backward_input(fast.ctx(), out, dout, inp, w, Tensor{}, rstd);
    ref.norm_backward_input(exact.ctx(), y, wide(dout), wide(inp), wide(w), Tensor{}, wide(rstd));
    // |g| <= 1, |xhat| <= 3 rstd: the two terms are at most 1 and (3 rstd)^2.
    expect_near("dinp", out, y, [&](int64_t i) {
      const double s = at(rstd, i / C);
      return unit * s * (1 + 9 * s * s);
    });
  }
}

TEST_F(CpuVsRef, Swiglu) {
  for (const double range : {1.0, 12.0}) {
    const Tensor inp = fast.random({1003, 2}, -range, range), dout = fast.random({1003, 1});
    const Tensor got = fast.empty(dout.shape), want = exact.empty(dout.shape);
    cpu.swiglu_forward(fast.ctx(), got, inp);
    ref.swiglu_forward(exact.ctx(), want, wide(inp));
    // An exponential, a sum, a quotient, a product.
    expect_near("forward", got, want,
                [&](int64_t i) { return 8 * kRound * std::abs(at(want, i)) + kTiny; });
    const Tensor dgot = fast.empty(inp.shape), dwant = exact.empty(inp.shape);
    cpu.swiglu_backward(fast.ctx(), dgot, dout, inp);
    ref.swiglu_backward(exact.ctx(), dwant, wide(dout), wide(inp));
    expect_near("backward", dgot, dwant, [&](int64_t i) {
      const double x = at(inp, i / 2 * 2), s = 1 / (1 + std::exp(-x)),
                   d = std::abs(at(dout, i / 2));
      // The slope's terms are s and x s (1 - s), and 1 - s has the error of s.
      const double terms =
          i % 2 ? std::abs(x) * s : std::abs(at(inp, i + 1)) * s * (1 + std::abs(x));
      return 10 * kRound * d * terms + kTiny;
    });
  }
}

TEST_F(CpuVsRef, SwigluFarOutAndNaN) {
  const float values[] = {3e38F, 100, INFINITY, -100, -3e38F, -INFINITY, NAN};
  Sandbox single{ref_kernels()};
  for (Sandbox* box : {&fast, &exact, &single}) {
    const Tensor inp = box->filled({7, 2}, 0.5), ones = box->filled({7, 1}, 1);
    const Tensor out = box->empty({7, 1}), dinp = box->empty({7, 2});
    for (int i = 0; i < 7; ++i) set(inp, 2 * i, values[i]);
    box->kernels().swiglu_forward(box->ctx(), out, inp);
    box->kernels().swiglu_backward(box->ctx(), dinp, ones, inp);
    for (int i = 0; i < 6; ++i) {
      const double silu = i < 3 ? at(inp, 2 * i) : 0;
      EXPECT_TRUE(at(out, i) == silu / 2 || std::abs(at(out, i) - silu / 2) < kTiny) << i;
      EXPECT_NEAR(at(dinp, 2 * i), i < 3 ? 0.5 : 0, kTiny) << i;
      EXPECT_TRUE(at(dinp, 2 * i + 1) == silu || std::abs(at(dinp, 2 * i + 1) - silu) < kTiny) << i;
    }
    EXPECT_TRUE(std::isnan(at(out, 6)) && std::isnan(at(dinp, 12)) && std::isnan(at(dinp, 13)));
    set(inp, 1, NAN);
    box->kernels().swiglu_forward(box->ctx(), out, inp);
    EXPECT_TRUE(std::isnan(at(out, 0)));
  }
}

// Two products and two fused multiply-adds, written out in all tables.
TEST_F(CpuVsRef, RopeHasTheBitsOfRef) {
  for (const Dtype dtype : {Dtype::F32, Dtype::BF16, Dtype::F16})
    for (const auto& [NKV, r, HS] : {std::array{1, 1, 2}, std::array{2, 3, 6}, std::array{3, 1, 16},
                                     std::array{2, 4, 64}, std::array{1, 2, 130}})
      for (const bool back : {false, true}) {
        const int64_t B = 2, T = 33;
        Sandbox plain{ref_kernels()};
        const Tensor angles = fast.angles(T, HS);
        const Tensor got = fast.random(dtype, {B, T, NKV * (r + 2) * HS}, -3, 3);
        set(got, 0, NAN);
        const Tensor want = fast.copy(got);
        cpu.rope(fast.ctx(), got, angles, NKV * r, back);
        ref.rope(plain.ctx(), want, angles, NKV * r, back);
        int64_t nans = 0;
        for (int64_t i = 0; i < got.size(); ++i) {
          nans += std::isnan(at(got, i));
          ASSERT_TRUE(at(got, i) == at(want, i) ||
                      (std::isnan(at(got, i)) && std::isnan(at(want, i))));
        }
        EXPECT_EQ(nans, 2) << "a NaN reaches its pair";
      }
}

double gate_exponent(double x) { return 1.6 * (x + 0.044715 * x * x * x); }

TEST_F(CpuVsRef, Gelu) {
  for (const double range : {1.0, 12.0}) {
    const Tensor inp = fast.random({1003}, -range, range), dout = fast.random({1003});
    const Tensor got = fast.empty(inp.shape), want = exact.empty(inp.shape);
    cpu.gelu_forward(fast.ctx(), got, inp);
    ref.gelu_forward(exact.ctx(), want, wide(inp));
    // An exponential turns the relative error of z into an absolute one: |z| eps of s(z).
    expect_near("forward", got, want, [&](int64_t i) {
      const double z = std::abs(gate_exponent(at(inp, i)));
      // The double tanh of `ref` cancels far on the negative side: 1e-16 of x stays.
      return 4 * kRound * (2 + z) * std::abs(at(want, i)) + 1e-15 * std::abs(at(inp, i)) + kTiny;
    });
    cpu.gelu_backward(fast.ctx(), got, dout, inp);
    ref.gelu_backward(exact.ctx(), want, wide(dout), wide(inp));
    expect_near("backward", got, want, [&](int64_t i) {
      const double x = at(inp, i), z = gate_exponent(x), s = 1 / (1 + std::exp(-z));
      const double slope = 1.6 * (1 + 0.134145 * x * x);
      const double terms = s + std::abs(x) * s * (1 - s) * slope;
      return (8 * kRound *
                  ((2 + std::abs(z)) * terms + std::abs(x) * s * slope * std::min(s, 1.0)) +
              1e-14) *
                 std::abs(at(dout, i)) +
             kTiny;
    });
  }
}

TEST_F(CpuVsRef, GeluFarOutAndNaN) {
  const float values[] = {3e38F, 1e20F, 100, INFINITY, -3e38F, -1e20F, -100, -INFINITY};
  Sandbox single{ref_kernels()};
  for (Sandbox* box : {&fast, &exact, &single}) {
    const Tensor inp = box->filled({9}, NAN), ones = box->filled({9}, 1), out = box->empty({9});
    const Tensor dinp = box->empty({9});
    for (int i = 0; i < 8; ++i) set(inp, i, values[i]);
    box->kernels().gelu_forward(box->ctx(), out, inp);
    box->kernels().gelu_backward(box->ctx(), dinp, ones, inp);
    for (int i = 0; i < 8; ++i) {
      const double expected = i < 4 ? at(inp, i) : 0;
      EXPECT_TRUE(at(out, i) == expected || std::abs(at(out, i) - expected) < kTiny) << i;
      EXPECT_NEAR(at(dinp, i), i < 4 ? 1 : 0, 100 * kTiny) << i;
    }
    EXPECT_TRUE(std::isnan(at(out, 8)) && std::isnan(at(dinp, 8)));
  }
}

TEST_F(CpuVsRef, CrossEntropy) {
  for (const auto& [B, T, V] :
       {Batch{1, 1, 1}, Batch{3, 5, 7}, Batch{2, 9, 40}, Batch{4, 3, 257}, Batch{1, 2, 50304}})
    for (const int64_t padding : {0, 3}) {
      if (padding >= V) continue;
      const int64_t vocab = V - padding;
      const Tensor logits = fast.random({B, T, V}, -5, 5), targets = fast.tokens({B, T}, vocab);
      targets.data<int32_t>()[0] = B * T > 1 ? kIgnore : 0;
      const Tensor losses = fast.empty({B}), l = exact.empty({B});
      const Tensor dlogits = fast.copy(logits), d = exact.empty(logits.shape);
      const float scale = 0.37F;
      cpu.cross_entropy(fast.ctx(), losses, dlogits, dlogits, targets, vocab, scale);
      ref.cross_entropy(exact.ctx(), l, d, wide(logits), targets, vocab, scale);
      // x - m is at most 10 and rounded once: ten roundings for the exponential.
      const double unit = kRound * (sum_roundings(V / 16 + 8, kLeaves) + 16);
      expect_near("losses", losses, l, [&](int64_t b) {
        return static_cast<double>(T) * unit + kRound * static_cast<double>(T) * at(l, b);
      });
      expect_near("dlogits", dlogits, d, [&](int64_t i) {
        const bool target = targets.data<int32_t>()[i / V] == i % V;
        const double p = at(d, i) / scale + (target ? 1 : 0);
        return scale * (2 * unit * p + (target ? 2 * kRound : 0));
      });
      const Tensor alone = fast.empty({B});
      cpu.cross_entropy(fast.ctx(), alone, Tensor{}, logits, targets, vocab, scale);
      EXPECT_TRUE(same_bits(alone, losses));
    }
}

TEST_F(CpuVsRef, NaNReachesLossAndAttention) {
  for (const int64_t place : {0, 20, 39}) {
    const Tensor logits = fast.random({2, 1, 40}), targets = fast.tokens({2, 1}, 40);
    set(logits, 40 + place, NAN);
    const Tensor losses = fast.empty({2}), dlogits = fast.empty(logits.shape);
    cpu.cross_entropy(fast.ctx(), losses, dlogits, logits, targets, 40, 1);
    EXPECT_FALSE(std::isnan(at(losses, 0)));
    EXPECT_TRUE(std::isnan(at(losses, 1)));

    const int64_t C = 16, T = 40;
    const Tensor qkv = fast.random({1, T, 3 * C}), out = fast.empty({1, T, C});
    set(qkv, place * 3 * C + C, NAN);  // a key: queries from `place` on see it
    cpu.attention_forward(fast.ctx(), out, fast.empty({1, 1, T}), qkv);
    for (int64_t t = 0; t < T; ++t) EXPECT_EQ(std::isnan(at(out, t * C)), t >= place) << t;
  }
}

TEST_F(CpuVsRef, NaNIsTheMaximumOfItsRow) {
  for (Sandbox* box : {&fast, &exact})
    for (const int64_t place : {0, 20, 38, 39}) {
      const Tensor logits = box->random({1, 3, 40}), max = box->empty({1, 3});
      set(logits, 40 + place, NAN);
      box->kernels().softmax_max(box->ctx(), max, logits, 39);
      for (const int64_t row : {0, 1, 2})
        EXPECT_EQ(std::isnan(at(max, row)), row == 1 && place < 39) << place;
    }
}

TEST_F(CpuVsRef, EmbedForwardResidualAddScale) {
  for (const auto& [B, T, C] : kBatches) {
    const int64_t V = 13;
    const Tensor a = fast.random({B, T, C}), b = fast.random({B, T, C}), bias = fast.random({C});
    const Tensor got = fast.empty(a.shape), want = exact.empty(a.shape);
    const auto bound = [](int64_t) { return 6 * kRound; };
    cpu.residual_forward(fast.ctx(), got, a, b, bias);
    ref.residual_forward(exact.ctx(), want, wide(a), wide(b), wide(bias));
    expect_near("join", got, want, bound);
    cpu.add(fast.ctx(), got, a, b);
    ref.add(exact.ctx(), want, wide(a), wide(b));
    expect_near("add", got, want, bound);
    cpu.scale(fast.ctx(), got, 0.7F);
    ref.scale(exact.ctx(), want, 0.7F);
    expect_near("scale", got, want, bound);
    const Tensor tokens = fast.tokens({B, T}, V), wte = fast.random({V, C});
    const Tensor wpe = fast.random({T, C});
    cpu.embed_forward(fast.ctx(), got, tokens, wte, wpe);
    ref.embed_forward(exact.ctx(), want, tokens, wide(wte), wide(wpe));
    expect_near("embed", got, want, bound);
  }
}

}  // namespace
}  // namespace ladder::test
