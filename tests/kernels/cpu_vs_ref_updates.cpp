// The optimizers and adaptive clipping: three steps each, `cpu` beside `ref` in double.
#include "tests/kernels/cpu_vs_ref.h"

namespace ladder::test {
namespace {

constexpr int64_t kLengths[] = {1, 7, 16, 203, 40001};
constexpr int kSteps = 3;
/// Roundings of one element in one step, generously: no formula has more operations than this.
constexpr double kOperations = 24;

class Updates : public CpuVsRef {
 protected:
  /// Weights move by lr 0.1 and less a step; errors of the states enter at that rate, but for
  /// Adam where small second moments enlarge them.
  void expect_equal(const char* what, const Tensor& got, const Tensor& want) {
    expect_near(what, got, want, [&](int64_t i) {
      return kSteps * kOperations * kRound * (1 + std::abs(at(want, i)));
    });
  }
};

TEST_F(Updates, Sgd) {
  for (const int64_t n : kLengths)
    for (const bool nesterov : {false, true}) {
      const SgdStep step{.lr = 0.1F, .momentum = 0.9F, .nesterov = nesterov};
      const Tensor w = fast.random({n}), v = fast.filled({n}, 0), w0 = wide(w), v0 = wide(v);
      const Tensor plain = fast.copy(w), plain0 = wide(w);
      for (int repeat = 0; repeat < kSteps; ++repeat) {
        const Tensor g = fast.random({n});
        cpu.sgd_update(fast.ctx(), w, v, g, step);
        ref.sgd_update(exact.ctx(), w0, v0, wide(g), step);
        cpu.sgd_update(fast.ctx(), plain, Tensor{}, g, step);
        ref.sgd_update(exact.ctx(), plain0, Tensor{}, wide(g), step);
      }
      expect_equal("param", w, w0);
      expect_equal("velocity", v, v0);
      expect_equal("plain", plain, plain0);
    }
}

AdamStep adam_step(int t, bool decoupled) {
  return {.lr = 0.1F,
          .beta1 = 0.9F,
          .beta2 = 0.95F,
          .eps = 1e-8F,
          .weight_decay = 0.1F,
          .decoupled = decoupled,
          .correction1 = 1 - std::pow(0.9F, static_cast<float>(t)),
          .correction2 = 1 - std::pow(0.95F, static_cast<float>(t))};
}

TEST_F(Updates, Adam) {
  for (const int64_t n : kLengths)
    for (const bool decoupled : {false, true}) {
      const Tensor w = fast.random({n}), m = fast.filled({n}, 0), v = fast.filled({n}, 0);
      const Tensor w0 = wide(w), m0 = wide(m), v0 = wide(v);
      for (int t = 1; t <= kSteps; ++t) {
        const Tensor g = fast.random({n}, 0.1, 1);
        cpu.adamw_update(fast.ctx(), w, m, v, g, adam_step(t, decoupled));
        ref.adamw_update(exact.ctx(), w0, m0, v0, wide(g), adam_step(t, decoupled));
      }
      expect_equal("param", w, w0);
      expect_equal("m", m, m0);
      expect_equal("v", v, v0);
    }
}

TEST_F(Updates, Lion) {
  const LionStep step{.lr = 0.1F, .beta1 = 0.9F, .beta2 = 0.99F, .weight_decay = 0.1F};
  for (const int64_t n : kLengths) {
    const Tensor w = fast.random({n}), m = fast.filled({n}, 0), w0 = wide(w), m0 = wide(m);
    const Tensor g = fast.random({n}, 0.1, 1);  // no sign is in doubt
    if (n > 3) set(g, 3, 0);
    for (int repeat = 0; repeat < kSteps; ++repeat) {
      cpu.lion_update(fast.ctx(), w, m, g, step);
      ref.lion_update(exact.ctx(), w0, m0, wide(g), step);
      // Back at half the length: the sign is that of beta1's mixture, but not of beta2's.
      cpu.scale(fast.ctx(), g, -0.5F);
    }
    expect_equal("param", w, w0);
    expect_equal("m", m, m0);
  }
}

// A NaN must be seen: with `ref`, too, a weight that met one is lost.
TEST_F(Updates, LionKeepsNaN) {
  const LionStep step{.lr = 0.1F, .beta1 = 0.9F, .beta2 = 0.99F, .weight_decay = 0.1F};
  for (Sandbox* box : {&fast, &exact}) {
    const Tensor w = box->filled({20}, 2), m = box->filled({20}, 0), g = box->filled({20}, 1);
    for (const int64_t i : {0, 19}) set(g, i, NAN);
    box->kernels().lion_update(box->ctx(), w, m, g, step);
    for (int64_t i = 0; i < 20; ++i)
      EXPECT_EQ(std::isnan(at(w, i)), i == 0 || i == 19) << box->kernels().name << " " << i;
  }
}

TEST_F(Updates, Adafactor) {
  const AdafactorStep step{
      .lr = 0.1F, .beta2 = 0.4F, .eps = 1e-30F, .clip = 1, .weight_decay = 0.1F};
  for (const auto& [R, N] : {std::pair{1, 1}, {7, 5}, {3, 203}, {300, 77}})
    for (const bool vector : {false, true}) {
      const Shape shape = vector ? Shape{R * N} : Shape{R, N};
      const Tensor w = fast.random(shape), w0 = wide(w);
      const Tensor row = fast.filled({vector ? R * N : R}, 0), row0 = wide(row);
      const Tensor col = vector ? Tensor{} : fast.filled({N}, 0), col0 = vector ? col : wide(col);
      for (int repeat = 0; repeat < kSteps; ++repeat) {
        const Tensor g = fast.random(shape);
        if (!vector && R > 1)  // a row that met no token
          for (int64_t n = 0; n < N; ++n) set(g, n, 0);
        cpu.adafactor_update(fast.ctx(), w, row, col, g, step);
        ref.adafactor_update(exact.ctx(), w0, row0, col0, wide(g), step);
      }
      const double roundings = kOperations + lane_roundings(R * N);
      const auto bound = [&](int64_t) { return 3 * kSteps * roundings * kRound; };
      expect_near("param", w, w0, bound);
      expect_near("row", row, row0, bound);
      if (!vector) expect_near("col", col, col0, bound);
    }
}

TEST_F(Updates, AdafactorZeroGradientLeavesTheWeights) {
  const AdafactorStep step{.lr = 0.1F, .beta2 = 0, .eps = 1e-30F, .clip = 1, .weight_decay = 0};
  const Tensor w = fast.random({5, 9}), before = fast.copy(w), g = fast.filled({5, 9}, 0);
  set(g, 44, 1e4);  // row 0 and column 0 stay at eps while the mean of the rows is large
  const Tensor row = fast.filled({5}, 0), col = fast.filled({9}, 0);
  cpu.adafactor_update(fast.ctx(), w, row, col, g, step);
  EXPECT_TRUE(same_bits(w.first(4), before.first(4)));
  EXPECT_LT(at(w, 44), at(before, 44));
}

TEST_F(Updates, Adam8Bit) {
  for (const int64_t n : {int64_t{1}, int64_t{64}, int64_t{203}, int64_t{6400}}) {
    const int64_t blocks = (n + kQuantBlock - 1) / kQuantBlock;
    const Tensor w = fast.random({n}), w0 = fast.copy(w);
    const auto state = [&] { return fast.zeros(Dtype::U8, {n}); };
    const auto scale = [&] { return fast.zeros(Dtype::F32, {blocks}); };
    const Tensor m = state(), v = state(), m0 = state(), v0 = state();
    const Tensor ms = scale(), vs = scale(), ms0 = scale(), vs0 = scale();
    const Tensor g = fast.random({n}, 0.1, 1);
    const auto step = [&](int t) { return adam_step(t, true); };
    cpu.adamw8bit_update(fast.ctx(), w, m, ms, v, vs, g, step(1));
    ref.adamw8bit_update(fast.ctx(), w0, m0, ms0, v0, vs0, g, step(1));
    expect_equal("param", w, w0);
    expect_equal("m scale", ms, ms0);
    expect_equal("v scale", vs, vs0);
    // A last-bit difference may cross a midpoint between two codes.
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_LE(std::abs(m.data<uint8_t>()[i] - m0.data<uint8_t>()[i]), 1);
      EXPECT_LE(std::abs(v.data<uint8_t>()[i] - v0.data<uint8_t>()[i]), 1);
    }
  }
}

TEST_F(Updates, AdaptiveClipOfARowThatIsNotFinite) {
  for (Sandbox* box : {&fast, &exact}) {
    const Tensor g = box->filled({3, 2}, 1), w = box->filled({3, 2}, 1);
    set(g, 1, INFINITY);  // row 0
    set(w, 5, NAN);       // row 2
    const Tensor g_limbs = box->zeros(Dtype::I64, {3, kLimbs});
    const Tensor w_limbs = box->zeros(Dtype::I64, {3, kLimbs});
    box->kernels().squared_norm(box->ctx(), g_limbs, g);
    box->kernels().squared_norm(box->ctx(), w_limbs, w);
    box->kernels().adaptive_clip(box->ctx(), g, g_limbs, w_limbs, 0.01F);
    for (int64_t i = 0; i < 6; ++i)
      EXPECT_EQ(std::isnan(at(g, i)), i / 2 != 1) << box->kernels().name << " " << i;
  }
}

TEST_F(Updates, AdaptiveClip) {
  const int64_t R = 9, N = 203;
  const Tensor w = fast.random({R, N}, -0.1, 0.1), g = fast.random({R, N}), g0 = wide(g);
  const Tensor w_limbs = fast.zeros(Dtype::I64, {R, kLimbs});
  const Tensor g_limbs = fast.zeros(Dtype::I64, {R, kLimbs});
  for (int64_t n = 0; n < N; ++n) set(w, n, 100);  // a row that is not clipped
  cpu.squared_norm(fast.ctx(), w_limbs, w);
  cpu.squared_norm(fast.ctx(), g_limbs, g);
  const Tensor before = fast.copy(g);
  cpu.adaptive_clip(fast.ctx(), g, g_limbs, w_limbs, 0.2F);
  ref.adaptive_clip(exact.ctx(), g0, g_limbs, w_limbs, 0.2F);
  expect_equal("grad", g, g0);
  EXPECT_TRUE(same_bits(g.first(1), before.first(1)));
  EXPECT_FALSE(same_bits(g.slice(1, 1), before.slice(1, 1)));
}

}  // namespace
}  // namespace ladder::test
