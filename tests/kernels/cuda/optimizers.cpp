// The optimizers, a few steps each. They do the operations of `ref` in its order, so that FP32
// results are equal bit for bit; but for Adafactor, whose sums come in another order.
#include "tests/kernels/cuda/vs_ref.h"

namespace ladder::test {
namespace {

constexpr int kSteps = 3;

class CudaOptimizers : public CudaVsRef {
 protected:
  static void expect_bits(const char* what, const Tensor& device, const Tensor& want) {
    EXPECT_TRUE(same_bits(down(device), want)) << what;
  }
  /// The last but the first element: not aligned to 16 bytes.
  static Tensor tail(const Tensor& x) { return x.slice(1, x.dim(0) - 1); }
};

/// Shorter than an access, whole accesses, blocks and a tail.
constexpr int64_t kLengths[] = {1, 7, 16, 203, 2050};

TEST_F(CudaOptimizers, Sgd) {
  for (const int64_t n : kLengths)
    for (const bool nesterov : {false, true}) {
      const SgdStep step{.lr = 0.1F, .momentum = 0.9F, .nesterov = nesterov};
      const Tensor w0 = host.random({n}), v0 = host.filled({n}, 0), plain0 = host.copy(w0);
      const Tensor w = up(w0), v = up(v0), plain = up(w0);
      for (int repeat = 0; repeat < kSteps; ++repeat) {
        const Tensor g0 = host.random({n}), g = up(g0);
        dev::sgd_update(dut().ctx, w, v, g, step);
        ref.sgd_update(host.ctx(), w0, v0, g0, step);
        dev::sgd_update(dut().ctx, plain, Tensor{}, g, step);
        ref.sgd_update(host.ctx(), plain0, Tensor{}, g0, step);
      }
      expect_bits("param", w, w0);
      expect_bits("velocity", v, v0);
      expect_bits("plain", plain, plain0);
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

TEST_F(CudaOptimizers, Adam) {
  for (const int64_t n : kLengths)
    for (const bool decoupled : {false, true}) {
      const Tensor w0 = host.random({n}), m0 = host.filled({n}, 0), v0 = host.filled({n}, 0);
      const Tensor w = up(w0), m = up(m0), v = up(v0);
      for (int t = 1; t <= kSteps; ++t) {
        const Tensor g = host.random({n});
        dev::adamw_update(dut().ctx, w, m, v, up(g), adam_step(t, decoupled));
        ref.adamw_update(host.ctx(), w0, m0, v0, g, adam_step(t, decoupled));
      }
      expect_bits("param", w, w0);
      expect_bits("m", m, m0);
      expect_bits("v", v, v0);
    }
}

TEST_F(CudaOptimizers, AdamOnAPartThatIsNotAligned) {
  const Tensor w0 = host.random({50}), m0 = host.filled({50}, 0), v0 = host.filled({50}, 0);
  const Tensor w = up(w0), m = up(m0), v = up(v0), g = host.random({50});
  dev::adamw_update(dut().ctx, tail(w), tail(m), tail(v), tail(up(g)), adam_step(1, true));
  ref.adamw_update(host.ctx(), tail(w0), tail(m0), tail(v0), tail(g), adam_step(1, true));
  expect_bits("param", w, w0);
  expect_bits("m", m, m0);
  expect_bits("v", v, v0);
}

TEST_F(CudaOptimizers, Lion) {
  const LionStep step{.lr = 0.1F, .beta1 = 0.9F, .beta2 = 0.99F, .weight_decay = 0.1F};
  for (const int64_t n : kLengths) {
    const Tensor w0 = host.random({n}), m0 = host.filled({n}, 0), w = up(w0), m = up(m0);
    for (int repeat = 0; repeat < kSteps; ++repeat) {
      const Tensor g = host.random({n});
      if (n > 3) set(g, 3, 0);
      dev::lion_update(dut().ctx, w, m, up(g), step);
      ref.lion_update(host.ctx(), w0, m0, g, step);
    }
    expect_bits("param", w, w0);
    expect_bits("m", m, m0);
  }
}

TEST_F(CudaOptimizers, NaNIsNoSign) {
  const LionStep step{.lr = 0.1F, .beta1 = 0.9F, .beta2 = 0.99F, .weight_decay = 0};
  const Tensor w = up(host.random({5})), g = host.random({5});
  set(g, 2, NAN);
  dev::lion_update(dut().ctx, w, up(host.filled({5}, 0)), up(g), step);
  const Tensor got = down(w);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(std::isnan(at(got, i)), i == 2);
}

TEST_F(CudaOptimizers, Adam8Bit) {
  for (const int64_t n : {int64_t{1}, int64_t{64}, int64_t{203}, int64_t{6400}}) {
    const int64_t blocks = (n + kQuantBlock - 1) / kQuantBlock;
    const Tensor codes = host.zeros(Dtype::U8, {n}), scales = host.filled({blocks}, 0);
    const Tensor w0 = host.random({n}), m0 = host.copy(codes), v0 = host.copy(codes);
    const Tensor ms0 = host.copy(scales), vs0 = host.copy(scales);
    const Tensor w = up(w0), m = up(m0), v = up(v0), ms = up(ms0), vs = up(vs0);
    for (int t = 1; t <= kSteps; ++t) {
      const Tensor g = host.random({n});
      for (int64_t i = 64; i < std::min(n, int64_t{128}); ++i) set(g, i, 0);  // a block of zeros
      dev::adamw8bit_update(dut().ctx, w, m, ms, v, vs, up(g), adam_step(t, true));
      ref.adamw8bit_update(host.ctx(), w0, m0, ms0, v0, vs0, g, adam_step(t, true));
    }
    expect_bits("param", w, w0);
    expect_bits("m", m, m0);
    expect_bits("m scale", ms, ms0);
    expect_bits("v", v, v0);
    expect_bits("v scale", vs, vs0);
  }
}

AdafactorStep adafactor_step() {
  return {.lr = 0.1F, .beta2 = 0.4F, .eps = 1e-30F, .clip = 1, .weight_decay = 0.1F};
}

TEST_F(CudaOptimizers, Adafactor) {
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
        dev::adafactor_update(dut().ctx, w, row, col, up(g), adafactor_step());
        ref.adafactor_update(exact.ctx(), want, row_want, col_want, wide(g), adafactor_step());
      }
      // At most 24 operations an element and step, beside the sums; u is at most a few.
      const double roundings = 24 + interleaved_roundings(R * N, 256);
      const auto bound = [&](int64_t) { return 3 * kSteps * roundings * kRound; };
      expect_near("param", w, want, bound);
      expect_near("row", row, row_want, bound);
      if (!vector) expect_near("col", col, col_want, bound);
    }
}

TEST_F(CudaOptimizers, AdafactorZeroGradientLeavesTheWeights) {
  AdafactorStep step = adafactor_step();
  step.weight_decay = 0;
  const Tensor before = host.random({5, 9}), g = host.filled({5, 9}, 0), w = up(before);
  set(g, 44, 1e4);  // row 0 and column 0 stay at eps while the mean of the rows is large
  dev::adafactor_update(dut().ctx, w, up(host.filled({5}, 0)), up(host.filled({9}, 0)), up(g),
                        step);
  const Tensor after = down(w);
  EXPECT_TRUE(same_bits(after.first(4), before.first(4)));
  EXPECT_LT(at(after, 44), at(before, 44));
}

}  // namespace
}  // namespace ladder::test
