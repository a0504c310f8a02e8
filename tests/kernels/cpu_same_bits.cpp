// The bits of `cpu` at sizes that are worth several threads: same_bits_batch.cpp tests the rule for
// all tables, on sizes that fit one tile. Products are in cpu_products.cpp.
#include <functional>
#include <vector>

#include "kernels/tree.h"
#include "tests/kernels/calls.h"

namespace ladder::test {
namespace {

class CpuSameBits : public ::testing::Test {
 protected:
  explicit CpuSameBits(Dtype real = Dtype::F32) : dtype(real) {}

  const Dtype dtype;
  Sandbox box{cpu_kernels(), dtype};
  const Kernels& k = box.kernels();
  const Ctx& ctx = box.ctx();

  /// Runs with 1 to 4 threads on copies of `start`; all must have the bits of the first run.
  void expect_any_threads(const char* name, const std::vector<Tensor>& start,
                          const std::function<void(const std::vector<Tensor>&)>& run) {
    std::vector<Tensor> first;
    for (int threads = 1; threads <= 4; ++threads) {
      box.set_threads(threads);
      std::vector<Tensor> out;
      for (const Tensor& x : start) out.push_back(box.copy(x));
      run(out);
      if (threads == 1) first = out;
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_TRUE(same_bits(out[i], first[i])) << name << " with " << threads << " threads";
    }
  }
};

/// With activations of 32 and of 16 bits.
class CpuAnyThreads : public CpuSameBits, public ::testing::WithParamInterface<Dtype> {
 protected:
  CpuAnyThreads() : CpuSameBits(GetParam()) {}
};

TEST_P(CpuAnyThreads, EveryCall) {
  // The last one has more columns than a thread sums together, and several leaves of tokens.
  for (const CallSizes& s : {CallSizes{12, 64, 130, 390}, {5, 70, 93, 390}, {2, 130, 6, 1700}})
    for (const Call& call : calls(box, s, dtype))
      for (const Into into : {Into::Write, Into::Add}) {
        if (into == Into::Add && !call.sums()) continue;
        std::vector<Tensor> start;
        for (const Tensor& x : call.outputs(box, dtype))
          start.push_back(box.random(x.dtype, x.shape));
        expect_any_threads(call.name, start,
                           [&](const auto& out) { call.on(k, ctx, out, 0, s.B, into); });
      }
  const Tensor x = box.random({5, 70, 93});
  expect_any_threads("cast", {box.empty(wide(dtype), x.shape)},
                     [&](const auto& out) { k.cast(ctx, out[0], x); });
}

TEST_F(CpuSameBits, AnyThreadsOptimizersAndNorms) {
  const int64_t R = 300, N = 203;
  const Tensor g = box.random({R, N});
  const auto half = [&](const Shape& shape) { return box.filled(shape, 0.5); };
  expect_any_threads("adafactor", {half({R, N}), half({R}), half({N})}, [&](auto& out) {
    k.adafactor_update(ctx, out[0], out[1], out[2], g,
                       {.lr = 0.1F, .beta2 = 0.9F, .eps = 1e-30F, .clip = 1, .weight_decay = 0.1F});
  });
  const Tensor w_limbs = box.zeros(Dtype::I64, {R, kLimbs}), g_limbs = box.copy(w_limbs);
  k.squared_norm(ctx, w_limbs, box.random({R, N}));
  k.squared_norm(ctx, g_limbs, g);
  expect_any_threads("adaptive_clip", {g},
                     [&](auto& out) { k.adaptive_clip(ctx, out[0], g_limbs, w_limbs, 0.9F); });
  for (const auto& [rows, length] : {std::pair{R, N}, {int64_t{1}, R * N}, {int64_t{3}, R * 67}}) {
    const Tensor x = g.view({R * N}).first(rows * length).view({rows, length});
    expect_any_threads("squared_norm", {box.zeros(Dtype::I64, {rows, kLimbs})},
                       [&](auto& out) { k.squared_norm(ctx, out[0], x); });
  }
}

TEST_F(CpuSameBits, NegativeControlASumCutByThreadsDiffers) {
  const int64_t T = 64, N = 390;
  const Tensor dout = box.random({1, T, N});
  const Tensor whole = box.empty({N}), cut = box.empty({N});
  k.bias_backward(ctx, whole, dout, Into::Write);
  for (int64_t thread = 0; thread < 3; ++thread) {
    const Range mine = leaf(thread, 3, T);
    const Tensor tokens =
        dout.view({T, N}).slice(mine.begin, mine.size()).view({1, mine.size(), N});
    k.bias_backward(ctx, cut, tokens, thread == 0 ? Into::Write : Into::Add);
  }
  EXPECT_FALSE(same_bits(cut, whole));
  EXPECT_LT(relative_error(cut, whole), 1e-6);
}

TEST_F(CpuSameBits, AttentionOf4096TokensFitsTheScratchAndOfMoreIsRefused) {
  const int64_t HS = 64;
  for (const int64_t T : {4096, 3 * 4096}) {
    const Tensor qkv = box.random({1, T, 3 * HS}), dout = box.random({1, T, HS});
    const Tensor out = box.empty(dout.shape), lse = box.empty({1, 1, T}),
                 dqkv = box.empty(qkv.shape);
    // All values are equal. So their mean is this value, whatever the weights are.
    for (int64_t i = 0; i < qkv.size(); ++i)
      if (i % (3 * HS) >= 2 * HS) set(qkv, i, 0.75);
    if (T > 4096) {
      EXPECT_THROW(k.attention_backward(ctx, dqkv, dout, qkv, out, lse), OutOfMemory);
      continue;
    }
    k.attention_forward(ctx, out, lse, qkv);
    k.attention_backward(ctx, dqkv, dout, qkv, out, lse);
    double dv = 0, sum = 0, terms = 0;
    for (int64_t i = 0; i < dout.size(); ++i) {
      ASSERT_NEAR(at(out, i), 0.75, 0.75 * 0x1p-24 * (8 + T)) << i;
      dv += at(dqkv, (i / HS * 3 + 2) * HS + i % HS);
      sum += at(dout, i);
      terms += std::abs(at(dout, i));
    }
    // The weights of a query sum to 1. So dv has the same sum as dout.
    EXPECT_NEAR(dv, sum, terms * 0x1p-24 * (8 + T));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CpuAnyThreads,
                         ::testing::Values(Dtype::F32, Dtype::BF16, Dtype::F16), dtype_name);

}  // namespace
}  // namespace ladder::test
