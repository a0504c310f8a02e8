// The linear layer in its three orientations against `ref` in double.
//
// A sum of K products in FP32 in any order: its error is at most K + 2 roundings of the sum of the
// products' magnitudes, with those of alpha and the bias.
#include "tests/kernels/cuda/vs_ref.h"

namespace ladder::test {
namespace {

struct Extents {
  int64_t B, T, N, K;
};
/// Odd ones, single rows, and such as chapters have.
constexpr Extents kExtents[] = {{1, 1, 1, 1}, {3, 5, 7, 9}, {2, 9, 33, 17}, {2, 16, 64, 40}};

class Matmul : public CudaVsRef {
 protected:
  /// Random; in FP8 if `scale` is given.
  Tensor factor(Dtype dtype, Shape shape, Fp8Scale* scale = nullptr) {
    if (!is_fp8(dtype)) return host.random(dtype, shape);
    Tensor x = host.empty(dtype, shape);
    x.fp8 = scale;
    const Tensor values = host.random(Dtype::F32, shape);
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, at(values, i));
    return x;
  }

  /// sum |a| |b| of each element, by the product itself: what errors are relative to.
  template <class Product>
  Tensor magnitudes(Shape shape, const Tensor& a, const Tensor& b, Product product) {
    const Tensor sum = exact.empty(shape);
    product(sum, size(a), size(b));
    return sum;
  }

  void expect_product(const std::string& what, const Tensor& got, const Tensor& want,
                      const Tensor& magnitude, int64_t K) {
    expect_near(what, got, want, [&](int64_t i) {
      return kRound * static_cast<double>(K + 4) * (at(magnitude, i) + 2);
    });
  }

  void forward_and_backward_input(const Extents& e, Dtype dtype, const Tensor& inp, const Tensor& w,
                                  const Tensor& dout) {
    const Shape y{e.B, e.T, e.N}, x{e.B, e.T, e.K};
    const Tensor bias = host.random(dtype, {e.N});
    for (const bool biased : {true, false}) {
      const Tensor got = out(dtype, y), want = exact.empty(y);
      const Tensor b = biased ? bias : Tensor{};
      dev::matmul_forward(dut().ctx, got, up(inp), up(w), up(b), kLeaves);
      ref.matmul_forward(exact.ctx(), want, wide(inp), wide(w), biased ? wide(b) : b, kLeaves);
      const Tensor sums = magnitudes(y, inp, w, [&](Tensor o, Tensor a, Tensor c) {
        ref.matmul_forward(exact.ctx(), o, a, c, Tensor{}, kLeaves);
      });
      expect_product("forward", got, want, sums, e.K);
    }
    const Tensor got = out(dtype, x), want = exact.empty(x);
    dev::matmul_backward_input(dut().ctx, got, up(dout), up(w), kLeaves);
    ref.matmul_backward_input(exact.ctx(), want, wide(dout), wide(w), kLeaves);
    const Tensor sums = magnitudes(x, dout, w, [&](Tensor o, Tensor a, Tensor c) {
      ref.matmul_backward_input(exact.ctx(), o, a, c, kLeaves);
    });
    expect_product("backward_input", got, want, sums, e.N);
  }

  void backward_weight(const Extents& e, const Tensor& dout, const Tensor& inp) {
    const Shape shape{e.N, e.K};
    const Tensor before = host.random(Dtype::F32, shape), want = wide(before);
    const Tensor written = out(Dtype::F32, shape), added = up(before);
    dev::matmul_backward_weight(dut().ctx, written, up(dout), up(inp), Into::Write);
    dev::matmul_backward_weight(dut().ctx, added, up(dout), up(inp), Into::Add);
    ref.matmul_backward_weight(exact.ctx(), want, wide(dout), wide(inp), Into::Add);
    const Tensor sums = magnitudes(shape, dout, inp, [&](Tensor o, Tensor a, Tensor b) {
      ref.matmul_backward_weight(exact.ctx(), o, a, b, Into::Write);
    });
    expect_product("added", added, want, sums, e.B * e.T);
    ref.matmul_backward_weight(exact.ctx(), want, wide(dout), wide(inp), Into::Write);
    expect_product("written", written, want, sums, e.B * e.T);
  }

  void in_parts(const Extents& e) {
    Fp8Scale inp_scale{.scale = 64}, w_scale{.scale = 4}, dout_scale{.scale = 16};
    const Tensor inp = factor(Dtype::E4M3, {e.B, e.T, e.K}, &inp_scale);
    const Tensor w = factor(Dtype::E4M3, {e.N, e.K}, &w_scale);
    const Tensor dout = factor(Dtype::E5M2, {e.B, e.T, e.N}, &dout_scale);
    const Tensor all = dut().ctx.scratch;
    // Behind the workspace of 32 MiB: half for the weight, or less, and some rows.
    dut().ctx.scratch = all.view({all.size()}).first((32 << 20) + 2 * e.N * e.K + 3000);
    forward_and_backward_input(e, Dtype::BF16, inp, w, dout);
    backward_weight(e, dout, inp);
    dut().ctx.scratch = all.view({all.size()}).first((32 << 20) + 100);
    EXPECT_THROW(forward_and_backward_input(e, Dtype::BF16, inp, w, dout), CheckError);
    dut().ctx.scratch = all;
  }
};

TEST_F(Matmul, AllOrientations) {
  for (const Dtype dtype : kReals)
    for (const Extents& e : kExtents) {
      const Tensor inp = factor(dtype, {e.B, e.T, e.K}), w = factor(dtype, {e.N, e.K});
      const Tensor dout = factor(dtype, {e.B, e.T, e.N});
      forward_and_backward_input(e, dtype, inp, w, dout);
      backward_weight(e, dout, inp);
    }
}

/// E4M3 forward, E5M2 for gradients: exact in 16 bits, so the same bounds hold.
TEST_F(Matmul, Fp8Factors) {
  Fp8Scale inp_scale{.scale = 64}, w_scale{.scale = 0x1p-3F}, dout_scale{.scale = 0x1p12F};
  for (const Dtype dtype : {Dtype::BF16, Dtype::F16})
    for (const Extents& e : kExtents) {
      const Tensor inp = factor(Dtype::E4M3, {e.B, e.T, e.K}, &inp_scale);
      const Tensor w = factor(Dtype::E4M3, {e.N, e.K}, &w_scale);
      const Tensor dout = factor(Dtype::E5M2, {e.B, e.T, e.N}, &dout_scale);
      forward_and_backward_input(e, dtype, inp, w, dout);
      backward_weight(e, dout, inp);
      // One factor in FP8, one in 16 bits.
      forward_and_backward_input(e, dtype, factor(dtype, inp.shape), w, factor(dtype, dout.shape));
      backward_weight(e, factor(dtype, dout.shape), inp);
    }
}

/// Where scratch is short, FP8 factors are widened in parts: single columns of the result, or 64.
TEST_F(Matmul, Fp8FactorsInParts) {
  for (const Extents& e : {Extents{2, 32, 64, 48}, Extents{1, 70, 160, 136}}) in_parts(e);
}

TEST_F(Matmul, TheSameProductTwice) {
  for (const Dtype dtype : kReals) {
    const Tensor inp = up(host.random(dtype, {3, 5, 24})), w = up(host.random(dtype, {16, 24}));
    const Tensor once = out(dtype, {3, 5, 16}), again = out(dtype, {3, 5, 16});
    dev::matmul_forward(dut().ctx, once, inp, w, Tensor{}, kLeaves);
    dev::matmul_forward(dut().ctx, again, inp, w, Tensor{}, kLeaves);
    EXPECT_TRUE(same_bits(down(once), down(again)));
  }
}

TEST_F(Matmul, AWeightThatNoRowMetHasNoGradient) {
  const Tensor dw = up(host.filled({5, 4}, 7));
  for (const Into into : {Into::Add, Into::Write}) {
    dev::matmul_backward_weight(dut().ctx, dw, out(Dtype::F32, {0, 3, 5}),
                                out(Dtype::F32, {0, 3, 4}), into);
    const Tensor got = down(dw);
    for (int64_t i = 0; i < got.size(); ++i) EXPECT_EQ(at(got, i), into == Into::Add ? 7 : 0);
  }
}

TEST_F(Matmul, ScalesOfFp8AreLegal) {
  const Tensor dout = host.zeros(Dtype::BF16, {1, 2, 5}), dw = out(Dtype::F32, {5, 4});
  for (const float scale : {2 * kMaxFp8Scale, 0.5F / kMaxFp8Scale, 0.0F}) {
    Fp8Scale illegal{.scale = scale};
    Tensor inp = host.zeros(Dtype::E4M3, {1, 2, 4});
    inp.fp8 = &illegal;
    EXPECT_THROW(dev::matmul_backward_weight(dut().ctx, dw, up(dout), up(inp), Into::Write),
                 CheckError)
        << scale;
  }
}

}  // namespace
}  // namespace ladder::test
