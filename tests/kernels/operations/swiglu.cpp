// SwiGLU against `ref`: lengths around what a thread and a block take, gates far out, NaN.
#include <cmath>

#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

constexpr int64_t kLengths[] = {1, 7, 8, 255, 2048, 4099};
using Swiglu = VsRef;

TEST_F(Swiglu, BothDirections) {
  for (const Dtype dtype : kReals)
    for (const int64_t n : kLengths) {
      const Tensor inp = host.random(dtype, {2 * n}, -12, 12), dout = host.random(dtype, {n});
      const Tensor y = exact.empty({n}), dx = exact.empty({2 * n});
      const Tensor got = out(dtype, {n}), dinp = out(dtype, {2 * n});
      k.swiglu_forward(ctx, got, up(inp));
      k.swiglu_backward(ctx, dinp, up(dout), up(inp));
      ref.swiglu_forward(exact.ctx(), y, wide(inp));
      ref.swiglu_backward(exact.ctx(), dx, wide(dout), wide(inp));
      // An exponential, a sum, a quotient, products.
      expect_near("forward", got, y,
                  [&](int64_t i) { return 10 * kRound * std::abs(at(y, i)) + kTiny; });
      expect_near("backward", dinp, dx, [&](int64_t i) {
        const double x = at(inp, i / 2 * 2), s = 1 / (1 + std::exp(-x));
        const double up = i % 2 ? std::abs(x) : std::abs(at(inp, i + 1)) * (1 + std::abs(x));
        return 12 * kRound * std::abs(at(dout, i / 2)) * s * up + kTiny;
      });
      // Negative control: gates and values change places. Where both are large, silu is nearly the
      // identity, so a single pair may not show it.
      if (n == 1) continue;
      const Tensor swapped = host.copy(inp);
      for (int64_t i = 0; i < 2 * n; ++i) set(swapped, i, at(inp, i ^ 1));
      k.swiglu_forward(ctx, got, up(swapped));
      EXPECT_GT(relative_error(down(got), y), 1e-3);
    }
}

TEST_F(Swiglu, FarOutAndNaN) {
  const float values[] = {3e38F, 100, INFINITY, -100, -3e38F, -INFINITY, NAN};
  const Tensor inp = host.filled({14}, 0.5), ones = host.filled({7}, 1);
  for (int i = 0; i < 7; ++i) set(inp, 2 * i, values[i]);
  const Tensor got = out(Dtype::F32, {7}), dinp = out(Dtype::F32, {14});
  k.swiglu_forward(ctx, got, up(inp));
  k.swiglu_backward(ctx, dinp, up(ones), up(inp));
  const Tensor y = down(got), dx = down(dinp);
  for (int i = 0; i < 6; ++i) {
    const double silu = i < 3 ? at(inp, 2 * i) : 0;
    EXPECT_TRUE(at(y, i) == silu / 2 || std::abs(at(y, i) - silu / 2) < kTiny) << i;
    EXPECT_NEAR(at(dx, 2 * i), i < 3 ? 0.5 : 0, kTiny) << i;
    EXPECT_TRUE(at(dx, 2 * i + 1) == silu || std::abs(at(dx, 2 * i + 1) - silu) < kTiny) << i;
  }
  EXPECT_TRUE(std::isnan(at(y, 6)) && std::isnan(at(dx, 12)) && std::isnan(at(dx, 13)));
  set(inp, 1, NAN);  // what a gate lets through
  k.swiglu_forward(ctx, got, up(inp));
  EXPECT_TRUE(std::isnan(at(down(got), 0)));
}

}  // namespace
}  // namespace ladder::test
