// Optimizers against the formulas of their papers, computed in double. PyTorch's runs in
// tests/golden hold SGD, Adam and AdamW.
#include <vector>

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr int64_t kCount = 15;
constexpr double kTolerance = 1e-13;
using Vector = std::vector<double>;

class Optimizers : public RefInDouble {
 protected:
  Vector values(const Tensor& x) {
    Vector out;
    for (int64_t i = 0; i < x.size(); ++i) out.push_back(at(x, i));
    return out;
  }
  void expect_near(const Tensor& got, const Vector& want, double tolerance = kTolerance) {
    ASSERT_EQ(got.size(), static_cast<int64_t>(want.size()));
    for (int64_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(at(got, i), want[i], tolerance * (1 + std::abs(want[i]))) << i;
  }

  Tensor param = box.random({kCount});
  Vector w = values(param);
};

TEST_F(Optimizers, Lion) {
  const Tensor m = box.filled({kCount}, 0);
  Vector momentum(kCount, 0.0);
  const LionStep step{.lr = 0.25F, .beta1 = 0.75F, .beta2 = 0.875F, .weight_decay = 0.5F};
  for (int t = 0; t < 3; ++t) {
    const Tensor grad = box.random({kCount});
    set(grad, 0, 0);  // sign(0) is 0: this weight only decays
    k.lion_update(ctx, param, m, grad, step);
    for (int64_t i = 0; i < kCount; ++i) {
      const double c = 0.75 * momentum[i] + 0.25 * at(grad, i);
      const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
      w[i] -= 0.25 * (sign + 0.5 * w[i]);
      momentum[i] = 0.875 * momentum[i] + 0.125 * at(grad, i);
    }
  }
  expect_near(param, w);
  expect_near(m, momentum);
}

TEST_F(Optimizers, AdafactorKeepsRowAndColumnMeans) {
  const int64_t R = 3, N = 5;
  const Tensor matrix = param.view({R, N});
  const Tensor row = box.filled({R}, 0), col = box.filled({N}, 0);
  Vector r(R, 0.0), c(N, 0.0);
  const AdafactorStep step{
      .lr = 0.25F, .beta2 = 0.75F, .eps = 0.0625F, .clip = 0.5F, .weight_decay = 0.5F};
  AdafactorStep loose = step;
  loose.clip = 64;
  for (const bool clips : {true, false}) {
    const Tensor grad = box.random({R, N});
    k.adafactor_update(ctx, matrix, row, col, grad, clips ? step : loose);
    for (double& x : r) x *= 0.75;
    for (double& x : c) x *= 0.75;
    for (int64_t i = 0; i < R * N; ++i) {
      const double q = std::pow(at(grad, i), 2) + 0.0625;
      r[i / N] += 0.25 * q / N;
      c[i % N] += 0.25 * q / R;
    }
    double mean = 0, squares = 0;
    for (const double x : r) mean += x / R;
    Vector u(kCount);
    for (int64_t i = 0; i < R * N; ++i) {
      u[i] = at(grad, i) / std::sqrt(r[i / N] * c[i % N] / mean);
      squares += u[i] * u[i] / (R * N);
    }
    const double damping = std::max(1.0, std::sqrt(squares) / (clips ? 0.5 : 64));
    for (int64_t i = 0; i < R * N; ++i) w[i] -= 0.25 * (u[i] / damping + 0.5 * w[i]);
    EXPECT_EQ(damping > 1, clips);
  }
  expect_near(matrix, w);
  expect_near(row, r);
  expect_near(col, c);
}

TEST_F(Optimizers, AdafactorOfAVectorIsNotFactored) {
  const Tensor moment = box.filled({kCount}, 0), grad = box.random({kCount});
  set(grad, 3, 0);
  const AdafactorStep step{.lr = 0.25F, .beta2 = 0, .eps = 1e-30F, .clip = 4, .weight_decay = 0};
  k.adafactor_update(ctx, param, moment, Tensor{}, grad, step);
  for (int64_t i = 0; i < kCount; ++i)
    w[i] -= i == 3 ? 0 : std::copysign(0.25, at(grad, i));  // g / sqrt(g^2)
  expect_near(param, w);
}

TEST_F(Optimizers, EightBitAdamWFollowsAdamW) {
  Sandbox floats(ref_kernels());
  const int64_t n = 3 * kQuantBlock + 17, blocks = 4;
  const Tensor narrow = floats.random({n}), wide = floats.copy(narrow), start = floats.copy(wide);
  const Tensor m = floats.filled({n}, 0), v = floats.filled({n}, 0);
  const Tensor mc = floats.zeros(Dtype::U8, {n}), vc = floats.zeros(Dtype::U8, {n});
  const Tensor ms = floats.filled({blocks}, 0), vs = floats.filled({blocks}, 0);
  const Tensor mean = floats.random({n});
  for (int t = 1; t <= 20; ++t) {
    const Tensor grad = floats.random({n}, -0.2, 0.2);
    k.add(ctx, grad, grad, mean);
    AdamStep step = adam_step(t, true);
    step.lr = 0.01F;
    k.adamw_update(ctx, wide, m, v, grad, step);
    k.adamw8bit_update(ctx, narrow, mc, ms, vc, vs, grad, step);
    // The first step starts from exact zeros: quantisation has not yet touched the weights.
    if (t == 1) {
      EXPECT_TRUE(same_bits(narrow, wide));
    }
  }
  double moved = 0, apart = 0;
  for (int64_t i = 0; i < n; ++i) {
    moved += std::pow(at(wide, i) - at(start, i), 2);
    apart += std::pow(at(narrow, i) - at(wide, i), 2);
  }
  EXPECT_LT(std::sqrt(apart / moved), 0.02);
  EXPECT_GT(apart, 0);
}

}  // namespace
}  // namespace ladder::test
