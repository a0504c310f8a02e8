// Operations on single elements against `ref`. A sum or a product rounds once, so it has the bits
// of `ref` in the same dtype. GELU is computed in another way than in `ref`, so it has a bound.
#include <cmath>

#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

/// Lengths around the 16 bytes of one thread and the threads of one block; one odd.
constexpr int64_t kLengths[] = {1, 7, 8, 255, 2048, 4099};

/// Vectors of one length, and two of twice that length: gates with their values, and gradients.
struct Vectors {
  Tensor a, b, c, positive, gates, dgates;

  /// f(x, elements of x for each of a)
  template <class F>
  Vectors map(const F& f) const {
    return {f(a, 1), f(b, 1), f(c, 1), f(positive, 1), f(gates, 2), f(dgates, 2)};
  }
};

class Elementwise : public VsRef {
 protected:
  struct Operation {
    const char* name;
    std::function<void(const Vectors&)> run;
  };
  /// Those whose elements do not depend on each other. Optimizers take F32 only.
  std::vector<Operation> operations(Dtype dtype) {
    const SgdStep sgd{.lr = 0.1F, .momentum = 0.9F, .nesterov = true};
    const LionStep lion{.lr = 0.1F, .beta1 = 0.9F, .beta2 = 0.99F, .weight_decay = 0.1F};
    const AdamStep adamw = adam_step(1, true), adam = adam_step(1, false);
    std::vector<Operation> all{
        {"gelu", [this](auto& x) { k.gelu_forward(ctx, x.a, x.b); }},
        {"gelu, back", [this](auto& x) { k.gelu_backward(ctx, x.a, x.b, x.c); }},
        {"swiglu", [this](auto& x) { k.swiglu_forward(ctx, x.a, x.gates); }},
        {"swiglu, back", [this](auto& x) { k.swiglu_backward(ctx, x.dgates, x.a, x.gates); }},
        {"add", [this](auto& x) { k.add(ctx, x.a, x.b, x.c); }},
        {"scale", [this](auto& x) { k.scale(ctx, x.a, 0.3F); }},
        {"sgd", [=, this](auto& x) { k.sgd_update(ctx, x.a, x.b, x.c, sgd); }},
        {"plain sgd", [=, this](auto& x) { k.sgd_update(ctx, x.a, {}, x.c, sgd); }},
        {"adamw", [=, this](auto& x) { k.adamw_update(ctx, x.a, x.b, x.positive, x.c, adamw); }},
        {"adam", [=, this](auto& x) { k.adamw_update(ctx, x.a, x.b, x.positive, x.c, adam); }},
        {"lion", [=, this](auto& x) { k.lion_update(ctx, x.a, x.b, x.c, lion); }},
    };
    if (dtype != Dtype::F32) all.resize(6);
    return all;
  }
};

TEST_F(Elementwise, AddAndScale) {
  for (const Dtype dtype : kReals)
    for (const int64_t n : kLengths) {
      const Tensor a = host.random(dtype, {n}), b = host.random(dtype, {n});
      const Tensor want = host.empty(dtype, {n}), got = out(dtype, {n});
      ref.add(host.ctx(), want, a, b);
      const Tensor inout = up(a);
      k.add(ctx, got, inout, up(b));
      k.add(ctx, inout, inout, up(b));
      EXPECT_TRUE(same_bits(down(got), want)) << n;
      EXPECT_TRUE(same_bits(down(inout), want)) << n;
      ref.scale(host.ctx(), want, 0.7F);
      k.scale(ctx, got, 0.7F);
      EXPECT_TRUE(same_bits(down(got), want)) << n;
    }
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
    if (k.transposes_fp8) codes.transposed = out(dtype, shape).ptr;
    return codes;
  };
  const auto expect_same = [&](const Tensor& got, const Tensor& want) {
    EXPECT_TRUE(same_bits(down(got), down(want))) << to_string(got.shape);
    EXPECT_EQ(got.fp8->amax, want.fp8->amax);
    if (!k.transposes_fp8) return;
    Tensor transposed = got, expected = want;
    transposed.ptr = got.transposed;
    expected.ptr = want.transposed;
    EXPECT_TRUE(same_bits(down(transposed), down(expected))) << to_string(got.shape);
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

// Neither its place in an access of 16 bytes nor the thread that computes it changes an element.
TEST_F(Elementwise, AnElementDoesNotFeelItsPosition) {
  const int64_t n = ctx.device ? 5003 : 40203;  // on the host so many that threads share them
  for (const Dtype dtype : kReals) {
    const auto random = [&](int64_t count, double low) { return host.random(dtype, {count}, low); };
    const Vectors start{random(n, -1), random(n, -6),     random(n, -1),
                        random(n, 0),  random(2 * n, -6), random(2 * n, -1)};
    for (const Operation& operation : operations(dtype)) {
      const auto copied = [](const Tensor& x, int64_t) { return up(x); };
      const Vectors whole = start.map(copied), parts = start.map(copied);
      operation.run(whole);
      const int64_t cuts[] = {0, 1, 8, 65, 96, 131, n / 3, n};
      for (size_t i = 0; i + 1 < std::size(cuts); ++i)
        operation.run(parts.map([&](const Tensor& x, int64_t each) {
          return x.slice(each * cuts[i], each * (cuts[i + 1] - cuts[i]));
        }));
      for (const auto vector : {&Vectors::a, &Vectors::b, &Vectors::positive, &Vectors::dgates})
        EXPECT_TRUE(same_bits(down(parts.*vector), down(whole.*vector))) << operation.name;
      dut().clear();
    }
  }
}

}  // namespace
}  // namespace ladder::test
