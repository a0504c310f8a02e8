// The bits of `cpu` at sizes where threads, blocks and slabs really cut: same_bits_batch.cpp and
// same_bits_parts.cpp test the rule for all tables, on sizes that fit one tile.
#include "tests/kernels/cpu_same_bits.h"

namespace ladder::test {
namespace {

/// With activations of 32 and of 16 bits.
class CpuAnyThreads : public CpuSameBits, public ::testing::WithParamInterface<Dtype> {
 protected:
  CpuAnyThreads() : CpuSameBits(GetParam()) {}
};

TEST_P(CpuAnyThreads, ParameterGradients) {
  const int64_t B = 12, T = 64, C = 130, N = 390, V = 50;
  const Tensor x = box.random({B, T, C}), d = box.random({B, T, C}), e = box.random({B, T, N});
  const Tensor mean = box.random(wide(dtype), {B, T});
  const Tensor rstd = box.random(wide(dtype), {B, T}, 0.5, 2);
  const Tensor tokens = box.tokens({B, T}, V);
  const int64_t kMany = 1700;  // columns: more than a thread sums together
  const Tensor many = box.random({2, T, kMany});
  for (const Into into : {Into::Write, Into::Add}) {
    expect_any_threads("embed", {sum({V, C}), sum({T + 3, C})},
                       [&](auto& out) { k.embed_backward(ctx, out[0], out[1], d, tokens, into); });
    expect_any_threads("words alone", {sum({V, C})},
                       [&](auto& out) { k.embed_backward(ctx, out[0], {}, d, tokens, into); });
    expect_any_threads("norm", {sum({C}), sum({C})}, [&](auto& out) {
      k.norm_backward_weight(ctx, out[0], out[1], d, x, mean, rstd, into);
    });
    expect_any_threads("rms", {sum({C})}, [&](auto& out) {
      k.norm_backward_weight(ctx, out[0], {}, d, x, {}, rstd, into);
    });
    expect_any_threads("matmul", {sum({N, C})},
                       [&](auto& out) { k.matmul_backward_weight(ctx, out[0], e, x, into); });
    expect_any_threads("bias", {sum({N})},
                       [&](auto& out) { k.bias_backward(ctx, out[0], e, into); });
    expect_any_threads("bias of many columns", {sum({kMany})},
                       [&](auto& out) { k.bias_backward(ctx, out[0], many, into); });
  }
}

TEST_P(CpuAnyThreads, Activations) {
  const int64_t B = 5, T = 70, NH = 3, C = 93, N = 390;
  const Tensor x = box.random({B, T, C}), d = box.random({B, T, C}), w = box.random({N, C});
  const Tensor bias = box.random({N}), e = box.random({B, T, N}), b = box.random({C});
  const Tensor mean = box.random(wide(dtype), {B, T});
  const Tensor rstd = box.random(wide(dtype), {B, T}, 0.5, 2);
  const Tensor qkv = box.random({B, T, 3 * C});
  const Tensor lse = box.random(wide(dtype), {B, NH, T}, 3, 4);
  const Tensor targets = box.tokens({B, T}, N - 5);
  expect_any_threads("matmul_forward", {act({B, T, N})},
                     [&](auto& out) { k.matmul_forward(ctx, out[0], x, w, bias, kLeaves); });
  expect_any_threads("matmul_backward_input", {act({B, T, C})},
                     [&](auto& out) { k.matmul_backward_input(ctx, out[0], e, w, kLeaves); });
  expect_any_threads("norm_forward", {act({B, T, C}), sum({B, T}), sum({B, T})},
                     [&](auto& out) { k.norm_forward(ctx, out[0], out[1], out[2], x, b, b); });
  expect_any_threads("norm_backward_input", {act({B, T, C})},
                     [&](auto& out) { k.norm_backward_input(ctx, out[0], d, x, b, mean, rstd); });
  expect_any_threads("rms_forward", {act({B, T, C}), sum({B, T})},
                     [&](auto& out) { k.norm_forward(ctx, out[0], {}, out[1], x, b, {}); });
  expect_any_threads("rms_backward_input", {act({B, T, C})},
                     [&](auto& out) { k.norm_backward_input(ctx, out[0], d, x, b, {}, rstd); });
  const Tensor angles = box.angles(T, 6), gated = box.random({B, T, N / 2});
  for (const bool back : {false, true})
    expect_any_threads("rope", {box.random({B, T, (7 + 2 * 7) * 6})},
                       [&](auto& out) { k.rope(ctx, out[0], angles, 7, back); });
  expect_any_threads("swiglu", {act({B, T, N / 2}), act({B, T, N})}, [&](auto& out) {
    k.swiglu_forward(ctx, out[0], e);
    k.swiglu_backward(ctx, out[1], gated, e);
  });
  expect_any_threads("attention_forward", {act({B, T, C}), sum({B, NH, T})},
                     [&](auto& out) { k.attention_forward(ctx, out[0], out[1], qkv); });
  expect_any_threads("attention_backward", {act({B, T, 3 * C})},
                     [&](auto& out) { k.attention_backward(ctx, out[0], d, qkv, x, lse); });
  expect_any_threads("gelu", {act({B, T, N}), act({B, T, N})}, [&](auto& out) {
    k.gelu_forward(ctx, out[0], e);
    k.gelu_backward(ctx, out[1], e, e);
  });
  expect_any_threads("join", {act({B, T, C})},
                     [&](auto& out) { k.residual_forward(ctx, out[0], x, d, b); });
  expect_any_threads("join without bias", {act({B, T, C})},
                     [&](auto& out) { k.residual_forward(ctx, out[0], x, d, {}); });
  const Tensor tokens = box.tokens({B, T}, N), places = box.random({T, C});
  expect_any_threads("embed_forward", {act({B, T, C})},
                     [&](auto& out) { k.embed_forward(ctx, out[0], tokens, w, places); });
  expect_any_threads("embed_forward without places", {act({B, T, C})},
                     [&](auto& out) { k.embed_forward(ctx, out[0], tokens, w, {}); });
  expect_any_threads("cast", {sum({B, T, C})}, [&](auto& out) { k.cast(ctx, out[0], x); });
  expect_any_threads("cross_entropy", {sum({B}), act({B, T, N})}, [&](auto& out) {
    k.cross_entropy(ctx, out[0], out[1], e, targets, N - 5, 0.1F);
  });
}

TEST_F(CpuSameBits, AnyThreadsOptimizersAndNorms) {
  const int64_t R = 300, N = 203;
  const Tensor g = box.random({R, N});
  expect_any_threads("adafactor", {act({R, N}), act({R}), act({N})}, [&](auto& out) {
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
    Tensor first;
    for (int threads = 1; threads <= 4; ++threads) {
      box.set_threads(threads);
      const Tensor limbs = box.zeros(Dtype::I64, {rows, kLimbs});
      k.squared_norm(ctx, limbs, x);
      if (threads == 1) first = limbs;
      EXPECT_TRUE(same_bits(limbs, first)) << rows << " rows, " << threads << " threads";
    }
  }
}

TEST_F(CpuSameBits, NegativeControlASumCutByThreadsDiffers) {
  const int64_t T = 64, N = 390;
  const Tensor dout = box.random({1, T, N});
  const Tensor whole = box.empty({N}), cut = box.empty({N});
  k.bias_backward(ctx, whole, dout, Into::Write);
  for (int64_t thread = 0; thread < 3; ++thread) {
    const Range mine = leaf(thread, 3, T);
    const Tensor tokens = part(dout.view({T, N}), mine, {0, N}).view({1, mine.size(), N});
    k.bias_backward(ctx, cut, tokens, thread == 0 ? Into::Write : Into::Add);
  }
  EXPECT_FALSE(same_bits(cut, whole));
  EXPECT_LT(relative_error(cut, whole), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Formats, CpuAnyThreads,
                         ::testing::Values(Dtype::F32, Dtype::BF16, Dtype::F16), dtype_name);

}  // namespace
}  // namespace ladder::test
