// Operations on single elements against `ref`. A sum or a product rounds once: the same bits as
// `ref` in the same dtype. GELU goes another way than `ref`: a bound from its exponential.
#include <cmath>

#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

/// Lengths around the 16 bytes of one thread and the threads of one block; one odd.
constexpr int64_t kLengths[] = {1, 7, 8, 255, 2048, 4099};

using Elementwise = VsRef;

TEST_F(Elementwise, AddAndScale) {
  for (const Dtype dtype : kReals)
    for (const int64_t n : kLengths) {
      const Tensor a = host.random(dtype, {n}), b = host.random(dtype, {n});
      const Tensor want = host.empty(dtype, {n}), got = out(dtype, {n});
      ref.add(host.ctx(), want, a, b);
      k.add(ctx, got, up(a), up(b));
      EXPECT_TRUE(same_bits(down(got), want)) << n;
      ref.scale(host.ctx(), want, 0.7F);
      k.scale(ctx, got, 0.7F);
      EXPECT_TRUE(same_bits(down(got), want)) << n;
    }
}

TEST_F(Elementwise, AddInPlace) {
  const Tensor a = host.random(Dtype::F32, {100}), b = host.random(Dtype::F32, {100});
  const Tensor want = host.empty(Dtype::F32, {100}), inout = up(a);
  ref.add(host.ctx(), want, a, b);
  k.add(ctx, inout, inout, up(b));
  EXPECT_TRUE(same_bits(down(inout), want));
}

TEST_F(Elementwise, Join) {
  for (const Dtype dtype : kReals)
    for (const int64_t C : {1, 7, 40, 2064})
      for (const int64_t rows : {1, 3, 9}) {
        const Tensor residual = host.random(dtype, {rows, C});
        const Tensor product = host.random(dtype, {rows, C});
        const Tensor want = host.empty(dtype, {rows, C}), got = out(dtype, {rows, C});
        set(residual, 0, -0.0), set(product, 0, -0.0);
        for (const Tensor& bias : {host.random(dtype, {C}), Tensor{}}) {
          ref.residual_forward(host.ctx(), want, residual, product, bias);
          k.residual_forward(ctx, got, up(residual), up(product), up(bias));
          EXPECT_TRUE(same_bits(down(got), want)) << rows << " " << C;
        }
      }
}

/// |z| or more, with gelu(x) = x s(z), s(z) = 1 / (1 + e^-z).
double gate_exponent(double x) { return 1.6 * (x + 0.044715 * x * x * x); }

TEST_F(Elementwise, Gelu) {
  // The tanh of `ref` cancels far on the negative side: a rounding of x stays, here in double.
  const double cancels = std::string(k.name) == "ref" ? 4 * kRound : 1e-15;
  for (const Dtype dtype : kReals)
    for (const int64_t n : kLengths) {
      const Tensor inp = host.random(dtype, {n}, -12, 12), dout = host.random(dtype, {n});
      const Tensor y = exact.empty({n}), dx = exact.empty({n});
      const Tensor got = out(dtype, {n}), dinp = up(dout);
      ref.gelu_forward(exact.ctx(), y, wide(inp));
      ref.gelu_backward(exact.ctx(), dx, wide(dout), wide(inp));
      k.gelu_forward(ctx, got, up(inp));
      k.gelu_backward(ctx, dinp, dinp, up(inp));  // in place
      // An exponential turns the relative error of z into an absolute one: |z| roundings of s(z).
      expect_near("forward", got, y, [&](int64_t i) {
        const double z = std::abs(gate_exponent(at(inp, i)));
        return 4 * kRound * (2 + z) * std::abs(at(y, i)) + cancels * std::abs(at(inp, i)) + kTiny;
      });
      expect_near("backward", dinp, dx, [&](int64_t i) {
        const double x = at(inp, i), z = gate_exponent(x), s = 1 / (1 + std::exp(-z));
        const double terms = s + std::abs(x) * s * 1.6 * (1 + 0.134145 * x * x);
        const double slope = 8 * kRound * (2 + std::abs(z)) * terms + 10 * cancels * (1 + x * x);
        return slope * std::abs(at(dout, i)) + kTiny;
      });
    }
}

// The bits of GELU and a cast one after the other, in whole tiles, parts of them, and rows of odd
// length.
TEST_F(Elementwise, GeluToCodes) {
  Fp8Scale scale{.scale = 16};
  const auto codes_of = [&](Dtype dtype, Shape shape) {
    Tensor codes = host.zeros(dtype, shape);
    codes.fp8 = &scale;
    codes = up(codes);
    if (k.turns_fp8) codes.turned = out(dtype, shape).ptr;
    return codes;
  };
  const auto expect_same = [&](const Tensor& got, const Tensor& want) {
    EXPECT_TRUE(same_bits(down(got), down(want))) << to_string(got.shape);
    EXPECT_EQ(got.fp8->amax, want.fp8->amax);
    if (!k.turns_fp8) return;
    Tensor turned = got, expected = want;
    turned.ptr = got.turned;
    expected.ptr = want.turned;
    EXPECT_TRUE(same_bits(down(turned), down(expected))) << to_string(got.shape);
  };
  for (const Dtype dtype : kReals)
    for (const Shape& shape : {Shape{256, 128}, {3, 12, 148}, {5, 7}}) {
      const Tensor inp = up(host.random(dtype, shape, -12, 12));
      const Tensor dout = up(host.random(dtype, shape)), y = out(dtype, shape);
      const Tensor got = codes_of(Dtype::E4M3, shape), want = codes_of(Dtype::E4M3, shape);
      k.gelu_forward(ctx, y, inp);
      k.cast(ctx, want, y);
      k.gelu_forward_codes(ctx, got, y, inp);
      expect_same(got, want);
      const Tensor dgot = codes_of(Dtype::E5M2, shape), dwant = codes_of(Dtype::E5M2, shape);
      k.gelu_backward(ctx, y, dout, inp);
      k.cast(ctx, dwant, y);
      k.gelu_backward_codes(ctx, dgot, dout, dout, inp);  // in place
      expect_same(dgot, dwant);
      EXPECT_TRUE(same_bits(down(dout), down(y)));
    }
}

TEST_F(Elementwise, GeluFarOutAndNaN) {
  const float values[] = {3e38F, 1e20F, 100, INFINITY, -3e38F, -1e20F, -100, -INFINITY, NAN};
  const Tensor inp = host.empty({9}), got = out(Dtype::F32, {9}), dinp = out(Dtype::F32, {9});
  for (int i = 0; i < 9; ++i) set(inp, i, values[i]);
  k.gelu_forward(ctx, got, up(inp));
  k.gelu_backward(ctx, dinp, up(host.filled({9}, 1)), up(inp));
  const Tensor y = down(got), dx = down(dinp);
  for (int i = 0; i < 8; ++i) {
    const double expected = i < 4 ? at(inp, i) : 0;
    EXPECT_TRUE(at(y, i) == expected || std::abs(at(y, i) - expected) < kTiny) << i;
    EXPECT_NEAR(at(dx, i), i < 4 ? 1 : 0, 100 * kTiny) << i;
  }
  EXPECT_TRUE(std::isnan(at(y, 8)) && std::isnan(at(dx, 8)));
}

TEST_F(Elementwise, AnElementDoesNotDependOnItsPosition) {
  const int64_t n = 1003;
  for (const Dtype dtype : kReals) {
    const Tensor inp = up(host.random(dtype, {n}, -6, 6));
    const Tensor whole = out(dtype, {n}), part = out(dtype, {n - 3});
    k.gelu_forward(ctx, whole, inp);
    k.gelu_forward(ctx, part, inp.slice(3, n - 3));  // no longer aligned to 16 bytes
    const Tensor tail = down(whole).slice(3, n - 3);
    EXPECT_TRUE(same_bits(down(part), tail));
  }
}

}  // namespace
}  // namespace ladder::test
