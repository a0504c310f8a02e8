// Products of FP8 in every table.
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

class Fp8Products : public VsRef {
 protected:
  /// Integers from -3 to 3.
  Tensor integers(Dtype format, Shape shape, int64_t step, Fp8Scale& scale) {
    Tensor x = host.empty(format, shape);
    x.fp8 = &scale;
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, static_cast<double>(i * step % 7 - 3));
    return x;
  }
  static void expect_equal(const Tensor& device, const Tensor& want) {
    EXPECT_EQ(relative_error(down(device), want), 0);
  }
};

// Every sum is exact, in FP32 and in 16 bits, so there is one right answer.
TEST_F(Fp8Products, OfIntegersAreExact) {
  const int64_t B = 2, T = 9, N = 21, K = 17;
  Fp8Scale quarter{.scale = 0.25F}, two{.scale = 2}, four{.scale = 4};
  const Tensor inp = integers(Dtype::E4M3, {B, T, K}, 5, quarter);
  const Tensor w = integers(Dtype::E4M3, {N, K}, 3, two);
  const Tensor dout = integers(Dtype::E5M2, {B, T, N}, 4, four);
  const Tensor y = exact.empty({B, T, N}), dx = exact.empty({B, T, K}), dw = exact.empty({N, K});
  ref.matmul_forward(exact.ctx(), y, wide(inp), wide(w), {}, kLeaves);
  ref.matmul_backward_input(exact.ctx(), dx, wide(dout), wide(w), kLeaves);
  ref.matmul_backward_weight(exact.ctx(), dw, wide(dout), wide(inp), Into::Write);
  for (const Dtype dtype : {Dtype::BF16, Dtype::F16}) {
    const Tensor got = out(dtype, y.shape), dinp = out(dtype, dx.shape);
    const Tensor dweight = out(Dtype::F32, dw.shape);
    k.matmul_forward(ctx, got, up(inp), up(w), {}, kLeaves);
    k.matmul_backward_input(ctx, dinp, up(dout), up(w), kLeaves);
    k.matmul_backward_weight(ctx, dweight, up(dout), up(inp), Into::Write);
    expect_equal(got, y);
    expect_equal(dinp, dx);
    expect_equal(dweight, dw);
  }
}

}  // namespace
}  // namespace ladder::test
