// Operations on single elements against `ref`. A sum or a product rounds once: the same bits as
// `ref` in the same dtype. GELU goes another way than `ref`: a bound from its exponential.
#include <cmath>

#include "tests/kernels/cuda/vs_ref.h"

namespace ladder::test {
namespace {

/// Lengths around the 16 bytes of one thread and the threads of one block; one odd.
constexpr int64_t kLengths[] = {1, 7, 8, 255, 2048, 4099};

/// Far below any result here.
constexpr double kTiny = 1e-36;

using Elementwise = CudaVsRef;

TEST_F(Elementwise, AddAndScale) {
  for (const Dtype dtype : kReals)
    for (const int64_t n : kLengths) {
      const Tensor a = host.random(dtype, {n}), b = host.random(dtype, {n});
      const Tensor want = host.empty(dtype, {n}), got = dut().empty(dtype, {n});
      ref.add(host.ctx(), want, a, b);
      dev::add(dut().ctx, got, dut().upload(a), dut().upload(b));
      EXPECT_TRUE(same_bits(dut().download(got), want)) << n;
      ref.scale(host.ctx(), want, 0.7F);
      dev::scale(dut().ctx, got, 0.7F);
      EXPECT_TRUE(same_bits(dut().download(got), want)) << n;
    }
}

TEST_F(Elementwise, AddInPlace) {
  const Tensor a = host.random(Dtype::F32, {100}), b = host.random(Dtype::F32, {100});
  const Tensor want = host.empty(Dtype::F32, {100}), inout = dut().upload(a);
  ref.add(host.ctx(), want, a, b);
  dev::add(dut().ctx, inout, inout, dut().upload(b));
  EXPECT_TRUE(same_bits(dut().download(inout), want));
}

TEST_F(Elementwise, Join) {
  for (const Dtype dtype : kReals)
    for (const int64_t C : {1, 7, 40, 2064})
      for (const int64_t rows : {1, 3, 9}) {
        const Tensor residual = host.random(dtype, {rows, C});
        const Tensor product = host.random(dtype, {rows, C});
        const Tensor want = host.empty(dtype, {rows, C}), got = dut().empty(dtype, {rows, C});
        set(residual, 0, -0.0), set(product, 0, -0.0);
        for (const Tensor& bias : {host.random(dtype, {C}), Tensor{}}) {
          ref.residual_forward(host.ctx(), want, residual, product, bias);
          dev::residual_forward(dut().ctx, got, up(residual), up(product), up(bias));
          EXPECT_TRUE(same_bits(down(got), want)) << rows << " " << C;
        }
      }
}

/// |z| or more, with gelu(x) = x s(z), s(z) = 1 / (1 + e^-z).
double gate_exponent(double x) { return 1.6 * (x + 0.044715 * x * x * x); }

TEST_F(Elementwise, Gelu) {
  for (const Dtype dtype : kReals)
    for (const int64_t n : kLengths) {
      const Tensor inp = host.random(dtype, {n}, -12, 12), dout = host.random(dtype, {n});
      const Tensor y = exact.empty({n}), dx = exact.empty({n});
      const Tensor got = out(dtype, {n}), dinp = up(dout);
      ref.gelu_forward(exact.ctx(), y, wide(inp));
      ref.gelu_backward(exact.ctx(), dx, wide(dout), wide(inp));
      dev::gelu_forward(dut().ctx, got, up(inp));
      dev::gelu_backward(dut().ctx, dinp, dinp, up(inp));  // in place
      // An exponential turns the relative error of z into an absolute one: |z| roundings of s(z).
      expect_near("forward", got, y, [&](int64_t i) {
        const double z = std::abs(gate_exponent(at(inp, i)));
        // The double tanh of `ref` cancels far on the negative side: 1e-16 of x stays.
        return 4 * kRound * (2 + z) * std::abs(at(y, i)) + 1e-15 * std::abs(at(inp, i)) + kTiny;
      });
      expect_near("backward", dinp, dx, [&](int64_t i) {
        const double x = at(inp, i), z = gate_exponent(x), s = 1 / (1 + std::exp(-z));
        const double terms = s + std::abs(x) * s * 1.6 * (1 + 0.134145 * x * x);
        return (8 * kRound * (2 + std::abs(z)) * terms + 1e-14) * std::abs(at(dout, i)) + kTiny;
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
    codes.turned = out(dtype, shape).ptr;
    return codes;
  };
  const auto expect_same = [&](const Tensor& got, const Tensor& want) {
    EXPECT_TRUE(same_bits(down(got), down(want))) << to_string(got.shape);
    EXPECT_EQ(got.fp8->amax, want.fp8->amax);
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
      dev::gelu_forward(dut().ctx, y, inp);
      dev::cast(dut().ctx, want, y);
      dev::gelu_forward_codes(dut().ctx, got, y, inp);
      expect_same(got, want);
      const Tensor dgot = codes_of(Dtype::E5M2, shape), dwant = codes_of(Dtype::E5M2, shape);
      dev::gelu_backward(dut().ctx, y, dout, inp);
      dev::cast(dut().ctx, dwant, y);
      dev::gelu_backward_codes(dut().ctx, dgot, dout, dout, inp);  // in place
      expect_same(dgot, dwant);
      EXPECT_TRUE(same_bits(down(dout), down(y)));
    }
}

TEST_F(Elementwise, GeluFarOutAndNaN) {
  const float values[] = {3e38F, -3e38F, 100, -100, INFINITY, NAN};
  const float expected[] = {3e38F, 0, 100, 0, INFINITY, NAN};
  const float slopes[] = {1, 0, 1, 0, 1, NAN};
  const Tensor inp = host.empty(Dtype::F32, {6}), ones = host.filled(Dtype::F32, {6}, 1);
  for (int i = 0; i < 6; ++i) set(inp, i, values[i]);
  const Tensor out = dut().empty(Dtype::F32, {6}), dinp = dut().empty(Dtype::F32, {6});
  dev::gelu_forward(dut().ctx, out, dut().upload(inp));
  dev::gelu_backward(dut().ctx, dinp, dut().upload(ones), dut().upload(inp));
  const Tensor y = dut().download(out), dx = dut().download(dinp);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(at(y, i) == expected[i] || std::abs(at(y, i) - expected[i]) < kTiny) << i;
    EXPECT_NEAR(at(dx, i), slopes[i], 100 * kTiny) << i;
  }
  EXPECT_TRUE(std::isnan(at(y, 5)) && std::isnan(at(dx, 5)));
}

TEST_F(Elementwise, AnElementDoesNotDependOnItsPosition) {
  const int64_t n = 1003;
  for (const Dtype dtype : kReals) {
    const Tensor inp = dut().upload(host.random(dtype, {n}, -6, 6));
    const Tensor whole = dut().empty(dtype, {n}), part = dut().empty(dtype, {n - 3});
    dev::gelu_forward(dut().ctx, whole, inp);
    dev::gelu_forward(dut().ctx, part, inp.slice(3, n - 3));  // no longer aligned to 16 bytes
    const Tensor tail = dut().download(whole).slice(3, n - 3);
    EXPECT_TRUE(same_bits(dut().download(part), tail));
  }
}

TEST_F(Elementwise, HostTensorsAreRefused) {
  const Tensor a = host.random(Dtype::F32, {8});
  EXPECT_THROW(dev::scale(dut().ctx, a, 2), CheckError);
  EXPECT_THROW(dev::scale(Ctx{}, dut().upload(a), 2), CheckError);
}

}  // namespace
}  // namespace ladder::test
