// The optimizers, a few steps each. Most tables do the operations of `ref` in the same order, so
// FP32 results have the same bits. Adafactor is an exception: its sums have another order.
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

constexpr int kSteps = 3;
/// Roundings of one element in one step, generously: no formula has more operations than this.
constexpr double kOperations = 24;

class Optimizers : public VsRef {
 protected:
  /// Equal to `ref`, or near it: each step adds a few roundings. A weight moves by at most lr = 0.1
  /// a step, and errors of the states enter with that factor.
  void expect_ref(const char* what, const Tensor& device, const Tensor& want) {
    if (!near_ref) {
      EXPECT_TRUE(same_bits(down(device), want)) << what;
      return;
    }
    expect_near(what, device, want, [&](int64_t i) {
      return 2 * kSteps * kOperations * kRound * (1 + std::abs(at(want, i)));
    });
  }
};

/// Shorter than an access, whole accesses, blocks and a tail; so many that threads share them.
constexpr int64_t kLengths[] = {1, 7, 16, 203, 2050, 40001};

TEST_F(Optimizers, Sgd) {
  for (const int64_t n : kLengths)
    for (const bool nesterov : {false, true}) {
      const SgdStep step{.lr = 0.1F, .momentum = 0.9F, .nesterov = nesterov};
      const Tensor w0 = host.random({n}), v0 = host.filled({n}, 0), plain0 = host.copy(w0);
      const Tensor w = up(w0), v = up(v0), plain = up(w0);
      for (int repeat = 0; repeat < kSteps; ++repeat) {
        const Tensor g0 = host.random({n}), g = up(g0);
        k.sgd_update(ctx, w, v, g, step);
        ref.sgd_update(host.ctx(), w0, v0, g0, step);
        k.sgd_update(ctx, plain, Tensor{}, g, step);
        ref.sgd_update(host.ctx(), plain0, Tensor{}, g0, step);
      }
      expect_ref("param", w, w0);
      expect_ref("velocity", v, v0);
      expect_ref("plain", plain, plain0);
    }
}

TEST_F(Optimizers, Adam) {
  for (const int64_t n : kLengths)
    for (const bool decoupled : {false, true}) {
      const Tensor w0 = host.random({n}), m0 = host.filled({n}, 0), v0 = host.filled({n}, 0);
      const Tensor w = up(w0), m = up(m0), v = up(v0);
      for (int t = 1; t <= kSteps; ++t) {
        const Tensor g = host.random({n}, 0.1, 1);  // a small second moment enlarges errors
        k.adamw_update(ctx, w, m, v, up(g), adam_step(t, decoupled));
        ref.adamw_update(host.ctx(), w0, m0, v0, g, adam_step(t, decoupled));
      }
      expect_ref("param", w, w0);
      expect_ref("m", m, m0);
      expect_ref("v", v, v0);
    }
}

TEST_F(Optimizers, Lion) {
  const LionStep step{.lr = 0.1F, .beta1 = 0.9F, .beta2 = 0.99F, .weight_decay = 0.1F};
  for (const int64_t n : kLengths) {
    const Tensor w0 = host.random({n}), m0 = host.filled({n}, 0), w = up(w0), m = up(m0);
    const Tensor g = host.random({n}, 0.1, 1);  // no sign is in doubt
    if (n > 3) set(g, 3, 0);
    for (int repeat = 0; repeat < kSteps; ++repeat) {
      k.lion_update(ctx, w, m, up(g), step);
      ref.lion_update(host.ctx(), w0, m0, g, step);
      // Back at half the length: the sign is that of beta1's mixture, but not of beta2's.
      ref.scale(host.ctx(), g, -0.5F);
    }
    expect_ref("param", w, w0);
    expect_ref("m", m, m0);
  }
}

TEST_F(Optimizers, NaNIsNoSign) {
  const LionStep step{.lr = 0.1F, .beta1 = 0.9F, .beta2 = 0.99F, .weight_decay = 0};
  const Tensor w = up(host.random({20})), g = host.random({20});
  for (const int64_t i : {0, 19}) set(g, i, NAN);
  k.lion_update(ctx, w, up(host.filled({20}, 0)), up(g), step);
  const Tensor got = down(w);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(std::isnan(at(got, i)), i == 0 || i == 19) << i;
}

TEST_F(Optimizers, Adam8Bit) {
  for (const int64_t n : {int64_t{1}, int64_t{64}, int64_t{203}, int64_t{6400}}) {
    const int64_t blocks = (n + kQuantBlock - 1) / kQuantBlock;
    const Tensor codes = host.zeros(Dtype::U8, {n}), scales = host.filled({blocks}, 0);
    const Tensor w0 = host.random({n}), m0 = host.copy(codes), v0 = host.copy(codes);
    const Tensor ms0 = host.copy(scales), vs0 = host.copy(scales);
    const Tensor w = up(w0), m = up(m0), v = up(v0), ms = up(ms0), vs = up(vs0);
    // Where results are near, a code may be its neighbor: the second step begins elsewhere.
    for (int t = 1; t <= (near_ref ? 1 : kSteps); ++t) {
      const Tensor g = host.random({n}, near_ref ? 0.1 : -1);
      for (int64_t i = 64; i < std::min(n, int64_t{128}); ++i) set(g, i, 0);  // a block of zeros
      k.adamw8bit_update(ctx, w, m, ms, v, vs, up(g), adam_step(t, true));
      ref.adamw8bit_update(host.ctx(), w0, m0, ms0, v0, vs0, g, adam_step(t, true));
    }
    expect_ref("param", w, w0);
    expect_ref("m scale", ms, ms0);
    expect_ref("v scale", vs, vs0);
    for (const auto& [device, want] : {std::pair{m, m0}, {v, v0}}) {
      const Tensor got = down(device);
      for (int64_t i = 0; i < n; ++i)
        EXPECT_LE(std::abs(got.data<uint8_t>()[i] - want.data<uint8_t>()[i]), near_ref ? 1 : 0);
    }
  }
}

AdafactorStep adafactor_step() {
  return {.lr = 0.1F, .beta2 = 0.4F, .eps = 1e-30F, .clip = 1, .weight_decay = 0.1F};
}

TEST_F(Optimizers, Adafactor) {
  for (const auto& [R, N] : {std::pair{1, 1}, {7, 5}, {3, 203}, {300, 76}})
    for (const bool vector : {false, true}) {
      const Shape shape = vector ? Shape{R * N} : Shape{R, N};
      const Tensor w0 = host.random(shape), zero_row = host.filled({vector ? R * N : R}, 0);
      const Tensor zero_col = vector ? Tensor{} : host.filled({N}, 0);
      const Tensor want = wide(w0), row_want = wide(zero_row);
      const Tensor col_want = vector ? Tensor{} : wide(zero_col);
      const Tensor w = up(w0), row = up(zero_row), col = up(zero_col);
      for (int repeat = 0; repeat < kSteps; ++repeat) {
        const Tensor g = host.random(shape);
        for (int64_t n = 0; !vector && R > 1 && n < N; ++n) set(g, n, 0);  // met no token
        k.adafactor_update(ctx, w, row, col, up(g), adafactor_step());
        ref.adafactor_update(exact.ctx(), want, row_want, col_want, wide(g), adafactor_step());
      }
      // Beside the sums; u is at most a few.
      const double roundings = kOperations + interleaved_roundings(R * N, 16);
      const auto bound = [&](int64_t) { return 3 * kSteps * roundings * kRound; };
      expect_near("param", w, want, bound);
      expect_near("row", row, row_want, bound);
      if (!vector) expect_near("col", col, col_want, bound);
    }
}

TEST_F(Optimizers, AdafactorZeroGradientLeavesTheWeights) {
  AdafactorStep step = adafactor_step();
  step.weight_decay = 0;
  const Tensor before = host.random({5, 9}), g = host.filled({5, 9}, 0), w = up(before);
  set(g, 44, 1e4);  // row 0 and column 0 stay at eps while the mean of the rows is large
  k.adafactor_update(ctx, w, up(host.filled({5}, 0)), up(host.filled({9}, 0)), up(g), step);
  const Tensor after = down(w);
  EXPECT_TRUE(same_bits(after.first(4), before.first(4)));
  EXPECT_LT(at(after, 44), at(before, 44));
}

}  // namespace
}  // namespace ladder::test
