// What a device does where `cpu` would refuse a call: it cannot look at tokens and targets before
// it computes. What it refuses, too. And the rungs of bench/attention_ladder.
#include "bench/attention_ladder/ladder.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/operations/vs_ref.h"

namespace ladder::test {
namespace {

using CudaLimits = VsRef;

TEST_F(CudaLimits, AnUnknownTokenIsNaNAndHasNoGradient) {
  const Tensor tokens = host.tokens({1, 4}, 5);
  tokens.data<int32_t>()[1] = 5;
  tokens.data<int32_t>()[2] = -1;
  const Tensor shared = share(tokens), table = up(host.random({5, 8}));
  const Tensor got = out(Dtype::F32, {1, 4, 8});
  k.embed_forward(ctx, got, shared, table, table);
  const Tensor y = down(got);
  for (int64_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(std::isnan(at(y, i)), i / 8 == 1 || i / 8 == 2) << i;

  const Tensor dout = host.filled({1, 4, 8}, 1), dwte = out(Dtype::F32, {5, 8});
  k.embed_backward(ctx, dwte, out(Dtype::F32, {5, 8}), up(dout), shared, Into::Write);
  const Tensor gradient = down(dwte);
  double sum = 0;
  for (int64_t i = 0; i < gradient.size(); ++i) sum += at(gradient, i);
  EXPECT_EQ(sum, 2 * 8);
}

TEST_F(CudaLimits, AnUnknownTargetIsNaN) {
  const Tensor logits = up(host.random({3, 1, 8})), max = up(host.filled({3, 1}, 1));
  for (const int32_t bad : {-3, -2, 7, 1000}) {
    const Tensor targets = host.tokens({3, 1}, 7);
    targets.data<int32_t>()[1] = bad;
    const Tensor losses = out(Dtype::F32, {3});
    const Tensor target = out(Dtype::F32, {3, 1}), sum = out(Dtype::F32, {3, 1});
    k.cross_entropy(ctx, losses, {}, logits, share(targets), 7, 1);
    k.softmax_sum(ctx, sum, target, logits, max, share(targets), 7);
    for (int64_t b = 0; b < 3; ++b) {
      EXPECT_EQ(std::isnan(at(down(losses), b)), b == 1) << bad;
      EXPECT_EQ(std::isnan(at(down(target), b)), b == 1 && bad != kElsewhere) << bad;
    }
  }
}

TEST_F(CudaLimits, HostTensorsAreRefused) {
  const Tensor a = host.random(Dtype::F32, {8});
  EXPECT_THROW(k.scale(ctx, a, 2), CheckError);
  EXPECT_THROW(k.scale(Ctx{}, up(a), 2), CheckError);
}

/// The threads of all blocks take kOnce weights at once; some have a second turn.
TEST_F(CudaLimits, Adam8BitOfManyWeights) {
  constexpr int64_t kOnce = int64_t{512} * 512 * 4, n = kOnce + 203;
  AdamStep step{};
  step.lr = 0.1F;
  step.correction1 = step.correction2 = 1;
  const Tensor w = up(host.filled({n}, 1)), grad = host.filled({n}, 0.5F);
  for (int64_t i = kOnce; i < n; ++i) set(grad, i, -0.5F);
  const Tensor m = up(host.zeros(Dtype::U8, {n})), v = up(host.zeros(Dtype::U8, {n}));
  const Tensor scales = host.filled({ceil_div(n, kQuantBlock)}, 0);
  k.adamw8bit_update(ctx, w, m, up(scales), v, up(scales), up(grad), step);
  const Tensor got = down(w);
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) wrong += at(got, i) != (i < kOnce ? 0.9F : 1.1F);
  EXPECT_EQ(wrong, 0);
}

TEST_F(CudaLimits, SumsNeedScratch) {
  Ctx poor = ctx;
  poor.scratch.shape = {1, 100};
  const Tensor dout = up(host.random({4, 8, 24}));
  EXPECT_THROW(k.bias_backward(poor, out(Dtype::F32, {24}), dout, Into::Write), OutOfMemory);
}

TEST_F(CudaLimits, AttentionThatDoesNotFitIsRefused) {
  const auto make = [](Shape shape) { return out(Dtype::F32, shape); };
  const Tensor x = make({1, 3, 387}), y = make({1, 3, 129}), lse = make({1, 1, 3});
  const Tensor row = make({1, 3, 16}), odd = make({145}).slice(1, 144).view({1, 3, 48});
  EXPECT_THROW(k.attention_forward(ctx, y, lse, x), CheckError);
  EXPECT_THROW(k.attention_backward(ctx, x, y, x, y, lse), CheckError);
  EXPECT_THROW(k.attention_forward(ctx, row, lse, odd), CheckError);
  const Tensor qkv = make({65536, 1, 12}), large = make({65536, 1, 4}), m = make({65536, 1, 1});
  EXPECT_THROW(k.attention_forward(ctx, large, m, qkv), OutOfMemory);
}

// The rungs of bench/attention_ladder against `ref`: a number of tokens that no tile divides.
using AttentionLadder = VsRef;

TEST_F(AttentionLadder, EveryRungAsRef) {
  const int64_t B = 2, T = 150, NH = 2, HS = 64;
  const Tensor qkv = host.random(Dtype::BF16, {B, T, 3 * NH * HS}, -2, 2);
  const Tensor dout = host.random(Dtype::BF16, {B, T, NH * HS});
  const Attended want = ref_attends(NH, qkv, dout);
  const Tensor x = up(qkv), dy = up(dout);
  for (const bench::Rung& rung : bench::rungs()) {
    const Tensor y = out(Dtype::BF16, dout.shape), l = out(Dtype::F32, {B, NH, T});
    const Tensor dx = out(Dtype::BF16, qkv.shape);
    rung.forward(ctx, y, l, x);
    EXPECT_LT(relative_error(down(y), want.out), 1e-2) << rung.name;
    EXPECT_LT(relative_error(down(l), want.lse), 2e-6) << rung.name;
    if (!rung.backward) continue;
    rung.backward(ctx, dx, dy, x, up(want.out), up(want.lse));
    EXPECT_LT(relative_error(down(dx), want.dqkv), 1e-2) << rung.name;
  }
}

}  // namespace
}  // namespace ladder::test
