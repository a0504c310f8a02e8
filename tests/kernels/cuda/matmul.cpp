// The linear layer in its three orientations against `ref` in double.
//
// A sum of K products in FP32 in any order: its error is at most K + 2 roundings of the sum of the
// products' magnitudes, with those of alpha and the bias.
//
// To that come the roundings of a 16-bit result: one, or two where cuBLASLt has no kernel that adds
// a bias to the sum. There a first kernel rounds the product, and a second one adds the bias to
// what the first wrote. An H200 does so in BF16 for results of 33 and of 47 columns: rows that are
// no multiple of 16 bytes. All that chapters have are, and are rounded once. Where a bias cancels
// most of the product, the first rounding is large beside the result: it is relative to the
// product.
#include "kernels/cuda/cuda_device.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

struct Extents {
  int64_t B, T, N, K;
};
/// Odd ones, single rows, and such as chapters have.
constexpr Extents kExtents[] = {{1, 1, 1, 1}, {3, 5, 7, 9}, {2, 9, 33, 17}, {2, 16, 64, 40}};
/// Whether 16-bit rows of the weight and of the result are multiples of 16 bytes.
constexpr bool is_fused(const Extents& e) { return e.N % 8 == 0 && e.K % 8 == 0; }

class Matmul : public VsRef {
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

  static void expect_product(
      const std::string& what, const Tensor& got, const Tensor& want, const Tensor& magnitude,
      int64_t K, const std::function<double(int64_t)>& before = [](int64_t) { return 0.0; }) {
    expect_near(what, got, want, [&](int64_t i) {
      const double sum = kRound * static_cast<double>(K + 4) * (at(magnitude, i) + 2);
      return sum + before(i) * (1 + sum);
    });
  }

  /// What the rounding of the product before the bias (N) is added may change in `want`.
  std::function<double(int64_t)> rounded_before(const Tensor& want, const Tensor& bias,
                                                Dtype dtype) {
    return [=](int64_t i) {
      const double product = at(want, i) - at(bias, i % bias.size());
      return rounding_to(dtype) * std::abs(product) + (dtype == Dtype::F16 ? kTinyF16 : 0);
    };
  }

  /// fused: the bias is added before the product is rounded. w_: the weight on the device
  void forward_and_backward_input(const Extents& e, Dtype dtype, const Tensor& inp, const Tensor& w,
                                  const Tensor& dout, bool fused) {
    forward_and_backward_input(e, dtype, inp, w, dout, fused, up(w));
  }
  void forward_and_backward_input(const Extents& e, Dtype dtype, const Tensor& inp, const Tensor& w,
                                  const Tensor& dout, bool fused, const Tensor& w_) {
    const Shape y{e.B, e.T, e.N}, x{e.B, e.T, e.K};
    const Tensor bias = host.random(dtype, {e.N});
    for (const bool biased : {true, false}) {
      const Tensor got = out(dtype, y), want = exact.empty(y);
      const Tensor b = biased ? bias : Tensor{};
      k.matmul_forward(ctx, got, up(inp), w_, up(b), kLeaves);
      ref.matmul_forward(exact.ctx(), want, wide(inp), wide(w), biased ? wide(b) : b, kLeaves);
      const Tensor sums = magnitudes(y, inp, w, [&](Tensor o, Tensor a, Tensor c) {
        ref.matmul_forward(exact.ctx(), o, a, c, Tensor{}, kLeaves);
      });
      const auto before = biased && !fused && dtype != Dtype::F32
                              ? rounded_before(want, wide(b), dtype)
                              : [](int64_t) { return 0.0; };
      expect_product("forward", got, want, sums, e.K, before);
    }
    const Tensor got = out(dtype, x), want = exact.empty(x);
    k.matmul_backward_input(ctx, got, up(dout), w_, kLeaves);
    ref.matmul_backward_input(exact.ctx(), want, wide(dout), wide(w), kLeaves);
    const Tensor sums = magnitudes(x, dout, w, [&](Tensor o, Tensor a, Tensor c) {
      ref.matmul_backward_input(exact.ctx(), o, a, c, kLeaves);
    });
    expect_product("backward_input", got, want, sums, e.N);
  }

  void backward_weight(const Extents& e, const Tensor& dout, const Tensor& inp) {
    backward_weight(e, dout, inp, up(dout), up(inp));
  }
  void backward_weight(const Extents& e, const Tensor& dout, const Tensor& inp, const Tensor& dout_,
                       const Tensor& inp_) {
    const Shape shape{e.N, e.K};
    const Tensor before = host.random(Dtype::F32, shape), want = wide(before);
    const Tensor written = out(Dtype::F32, shape), added = up(before);
    k.matmul_backward_weight(ctx, written, dout_, inp_, Into::Write);
    k.matmul_backward_weight(ctx, added, dout_, inp_, Into::Add);
    ref.matmul_backward_weight(exact.ctx(), want, wide(dout), wide(inp), Into::Add);
    const Tensor sums = magnitudes(shape, dout, inp, [&](Tensor o, Tensor a, Tensor b) {
      ref.matmul_backward_weight(exact.ctx(), o, a, b, Into::Write);
    });
    expect_product("added", added, want, sums, e.B * e.T);
    ref.matmul_backward_weight(exact.ctx(), want, wide(dout), wide(inp), Into::Write);
    expect_product("written", written, want, sums, e.B * e.T);
  }

  /// Codes on the device, transposed, too.
  Tensor up_turned(const Tensor& x) {
    const int64_t rows = x.rows(), columns = x.dim(-1);
    const Tensor other = host.empty(x.dtype, {columns, rows});
    for (int64_t i = 0; i < x.size(); ++i)
      set_code(other, i % columns * rows + i / columns, code_at(x, i));
    Tensor both = up(x);
    both.transposed = up(other).ptr;
    return both;
  }
  /// The transposed codes alone; what was before them has been overwritten.
  Tensor up_turned_alone(const Tensor& x) {
    Tensor both = up_turned(x);
    both.ptr = out(x.dtype, x.shape).ptr;
    return both;
  }

  void in_parts(const Extents& e) {
    Fp8Scale inp_scale{.scale = 64}, w_scale{.scale = 4}, dout_scale{.scale = 16};
    const Tensor inp = factor(Dtype::E4M3, {e.B, e.T, e.K}, &inp_scale);
    const Tensor w = factor(Dtype::E4M3, {e.N, e.K}, &w_scale);
    const Tensor dout = factor(Dtype::E5M2, {e.B, e.T, e.N}, &dout_scale);
    const Tensor all = ctx.scratch;
    // Behind the workspace of 32 MiB: half for the weight, or less, and some rows.
    ctx.scratch = all.view({all.size()}).first((32 << 20) + 2 * e.N * e.K + 3000);
    device().use_fp8_units(false);
    // If fewer than 64, of the first extents 47, columns fit at once, their bytes are odd.
    forward_and_backward_input(e, Dtype::BF16, inp, w, dout, e.N > 64);
    backward_weight(e, dout, inp);
    backward_weight(e, dout, inp, up_turned_alone(dout), up_turned_alone(inp));
    ctx.scratch = all.view({all.size()}).first((32 << 20) + 100);
    EXPECT_THROW(forward_and_backward_input(e, Dtype::BF16, inp, w, dout, true), CheckError);
    ctx.scratch = all;
    device().use_fp8_units(true);
  }

  dev::CudaDevice& device() const { return dev::device_of(ctx); }

  /// From -3 to 3, in FP8: so that all sums are exact in the 14 bits that tensor cores keep.
  Tensor integers(Dtype dtype, Shape shape, Fp8Scale* scale) {
    const Tensor x = factor(dtype, shape, scale), values = host.random(shape, -3.4, 3.4);
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, std::round(at(values, i)) / scale->scale);
    return x;
  }

  void on_units(const Extents& e, Dtype dtype) {
    Fp8Scale inp_scale{.scale = 64}, w_scale{.scale = 4}, dout_scale{.scale = 16};
    const Tensor inp = integers(Dtype::E4M3, {e.B, e.T, e.K}, &inp_scale);
    const Tensor w = integers(Dtype::E4M3, {e.N, e.K}, &w_scale);
    const Tensor dout = integers(Dtype::E5M2, {e.B, e.T, e.N}, &dout_scale);
    forward_and_backward_input(e, dtype, inp, w, dout, true, up_turned(w));
    backward_weight(e, dout, inp, up_turned_alone(dout), up_turned_alone(inp));
  }

  /// Products of FP8 by FP8 that the library has been asked for.
  int64_t asked_of_units() {
    int64_t count = 0;
    for (const auto& [key, algorithm] : device().matmul_algorithms())
      count += key[4] == static_cast<int64_t>(Dtype::E4M3);
    return count;
  }
};

TEST_F(Matmul, AllOrientations) {
  for (const Dtype dtype : kReals)
    for (const Extents& e : kExtents) {
      const Tensor inp = factor(dtype, {e.B, e.T, e.K}), w = factor(dtype, {e.N, e.K});
      const Tensor dout = factor(dtype, {e.B, e.T, e.N});
      forward_and_backward_input(e, dtype, inp, w, dout, is_fused(e));
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
      forward_and_backward_input(e, dtype, inp, w, dout, is_fused(e));
      backward_weight(e, dout, inp);
      backward_weight(e, dout, inp, up_turned_alone(dout), up_turned_alone(inp));
      // One factor in FP8, one in 16 bits.
      forward_and_backward_input(e, dtype, factor(dtype, inp.shape), w, factor(dtype, dout.shape),
                                 is_fused(e));
      const Tensor wide_dout = factor(dtype, dout.shape);
      backward_weight(e, wide_dout, inp);
      backward_weight(e, wide_dout, inp, up(wide_dout), up_turned_alone(inp));
    }
}

/// Where scratch is short, FP8 factors are widened in parts: single columns of the result, or 64.
TEST_F(Matmul, Fp8FactorsInParts) {
  for (const Extents& e : {Extents{2, 32, 64, 48}, Extents{1, 70, 160, 136}}) in_parts(e);
}

/// Codes that the units multiply as they are, or transposed.
TEST_F(Matmul, Fp8OnUnits) {
  if (!device().fp8_units()) GTEST_SKIP() << "compute capability below 8.9";
  for (const Extents& e : {Extents{2, 16, 64, 48}, Extents{3, 48, 144, 272}})
    for (const Dtype dtype : {Dtype::BF16, Dtype::F16}) {
      const int64_t before = asked_of_units();
      on_units(e, dtype);
      EXPECT_GE(asked_of_units(), before + 2);  // written and added is one more, once
    }
}

TEST_F(Matmul, TheSameProductTwice) {
  for (const Dtype dtype : kReals) {
    const Tensor inp = up(host.random(dtype, {3, 5, 24})), w = up(host.random(dtype, {16, 24}));
    const Tensor once = out(dtype, {3, 5, 16}), again = out(dtype, {3, 5, 16});
    k.matmul_forward(ctx, once, inp, w, Tensor{}, kLeaves);
    k.matmul_forward(ctx, again, inp, w, Tensor{}, kLeaves);
    EXPECT_TRUE(same_bits(down(once), down(again)));
  }
}

TEST_F(Matmul, AWeightThatNoRowMetHasNoGradient) {
  const Tensor dw = up(host.filled({5, 4}, 7));
  for (const Into into : {Into::Add, Into::Write}) {
    k.matmul_backward_weight(ctx, dw, out(Dtype::F32, {0, 3, 5}), out(Dtype::F32, {0, 3, 4}), into);
    const Tensor got = down(dw);
    for (int64_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(into == Into::Add ? at(got, i) == 7 : is_minus_zero(at(got, i))) << at(got, i);
  }
}

TEST_F(Matmul, TheHostWaitsOnceForOffsets) {
  const ExpertRows rows{.offsets = share(host.zeros(Dtype::I32, {3})),
                        .row = up(host.zeros(Dtype::I32, {1, 4, 1})),
                        .from = up(host.zeros(Dtype::I32, {4}))};
  k.expert_rows(ctx, rows, up(host.tokens({1, 4, 1}, 2)), 0);
  EXPECT_TRUE(device().host_lacks_offsets);
  const Tensor x = up(host.random({4, 8})), w = up(host.random({2, 8, 8}));
  k.grouped_matmul_forward(ctx, up(host.random({4, 8})), x, w, rows, kLeaves);
  EXPECT_FALSE(device().host_lacks_offsets);
}

TEST_F(Matmul, ScalesOfFp8AreLegal) {
  const Tensor dout = host.zeros(Dtype::BF16, {1, 2, 5}), dw = out(Dtype::F32, {5, 4});
  for (const float scale : {2 * kMaxFp8Scale, 0.5F / kMaxFp8Scale, 0.0F}) {
    Fp8Scale illegal{.scale = scale};
    Tensor inp = host.zeros(Dtype::E4M3, {1, 2, 4});
    inp.fp8 = &illegal;
    EXPECT_THROW(k.matmul_backward_weight(ctx, dw, up(dout), up(inp), Into::Write), CheckError)
        << scale;
  }
}

}  // namespace
}  // namespace ladder::test
