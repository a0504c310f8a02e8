// The bits of `cpu` at sizes where threads, blocks and slabs really cut: same_bits_batch.cpp and
// same_bits_parts.cpp test the rule for all tables, on sizes that fit one tile.
#include "tests/kernels/cpu_same_bits.h"

#include "tests/kernels/calls.h"

namespace ladder::test {
namespace {

/// With activations of 32 and of 16 bits.
class CpuAnyThreads : public CpuSameBits, public ::testing::WithParamInterface<Dtype> {
 protected:
  CpuAnyThreads() : CpuSameBits(GetParam()) {}
};

TEST_P(CpuAnyThreads, EveryCall) {
  // The last with more columns than a thread sums together, and several leaves of tokens.
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
    const Tensor tokens = part(dout.view({T, N}), mine, {0, N}).view({1, mine.size(), N});
    k.bias_backward(ctx, cut, tokens, thread == 0 ? Into::Write : Into::Add);
  }
  EXPECT_FALSE(same_bits(cut, whole));
  EXPECT_LT(relative_error(cut, whole), 1e-6);
}

struct Attended {
  Tensor out, lse, dqkv;
};

class CpuAttention : public CpuSameBits {
 protected:
  Attended run(const Tensor& qkv, const Tensor& dout) {
    const Attended r{box.empty(dout.shape), box.empty({1, 1, qkv.dim(1)}), box.empty(qkv.shape)};
    k.attention_forward(ctx, r.out, r.lse, qkv);
    k.attention_backward(ctx, r.dqkv, dout, qkv, r.out, r.lse);
    return r;
  }
  /// q, k or v of some tokens of one head.
  Tensor part_of(const Tensor& qkv, int64_t tokens, int64_t part) {
    const int64_t HS = qkv.dim(2) / 3;
    const Tensor x = box.empty({tokens, HS});
    for (int64_t i = 0; i < x.size(); ++i) set(x, i, at(qkv, (i / HS * 3 + part) * HS + i % HS));
    return x;
  }
  /// The first n tokens of a tensor (1,T,C).
  static Tensor first(const Tensor& x, int64_t n) {
    return x.view({x.dim(1), x.dim(2)}).first(n).view({1, n, x.dim(2)});
  }
};

TEST_F(CpuAttention, ANaNReachesTheQueriesThatSeeIt) {
  const int64_t C = 16, T = 40;
  for (const int64_t place : {0, 20, 39}) {
    const Tensor qkv = box.random({1, T, 3 * C}), out = box.empty({1, T, C});
    set(qkv, place * 3 * C + C, NAN);  // a key
    k.attention_forward(ctx, out, box.empty({1, 1, T}), qkv);
    for (int64_t t = 0; t < T; ++t) EXPECT_EQ(std::isnan(at(out, t * C)), t >= place) << t;
  }
}

TEST_F(CpuAttention, ATokenDoesNotFeelWhatFollows) {
  const int64_t T = 300, HS = 20;
  const Tensor qkv = box.random({1, T, 3 * HS}), dout = box.random({1, T, HS});
  const Attended whole = run(qkv, dout);
  for (const int64_t n : {1, 5, 74, 75, 76, 192, 200, 299}) {
    const Tensor other = box.copy(qkv);
    for (int64_t i = n * 3 * HS; i < other.size(); ++i) set(other, i, -at(qkv, i) / 2);
    const Attended cut = run(other, dout);
    EXPECT_TRUE(same_bits(first(cut.out, n), first(whole.out, n))) << n;
    EXPECT_TRUE(same_bits(cut.lse.view({T}).first(n), whole.lse.view({T}).first(n))) << n;
    EXPECT_TRUE(same_bits(part_of(cut.dqkv, n, 0), part_of(whole.dqkv, n, 0))) << n;
    // Negative control: keys do feel the queries that follow.
    EXPECT_FALSE(same_bits(part_of(cut.dqkv, n, 1), part_of(whole.dqkv, n, 1))) << n;
  }
}

TEST_F(CpuAttention, AHeadOf4096TokensFitsTheScratchAndALongerOneIsRefused) {
  const int64_t HS = 64;
  for (const int64_t T : {4096, 3 * 4096}) {
    const Tensor qkv = box.random({1, T, 3 * HS}), dout = box.random({1, T, HS});
    // The same value everywhere: its mean is that, and no weight matters.
    for (int64_t i = 0; i < qkv.size(); ++i)
      if (i % (3 * HS) >= 2 * HS) set(qkv, i, 0.75);
    if (T > 4096) {
      EXPECT_THROW(run(qkv, dout), OutOfMemory);
      EXPECT_THROW(k.attention_backward(ctx, qkv, dout, qkv, dout, box.empty({1, 1, T})),
                   OutOfMemory);
      continue;
    }
    const Attended got = run(qkv, dout);
    double dv = 0, sum = 0, terms = 0;
    for (int64_t i = 0; i < dout.size(); ++i) {
      ASSERT_NEAR(at(got.out, i), 0.75, 0.75 * 0x1p-24 * (8 + T)) << i;
      dv += at(got.dqkv, (i / HS * 3 + 2) * HS + i % HS);
      sum += at(dout, i);
      terms += std::abs(at(dout, i));
    }
    // Weights of a query sum to 1: dv sums to what dout does.
    EXPECT_NEAR(dv, sum, terms * 0x1p-24 * (8 + T));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CpuAnyThreads,
                         ::testing::Values(Dtype::F32, Dtype::BF16, Dtype::F16), dtype_name);

}  // namespace
}  // namespace ladder::test
