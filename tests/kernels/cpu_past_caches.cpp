// Outputs so large that `cpu` stores them past the caches.
#include <functional>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/gemm/finish.h"
#include "kernels/tree.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class CpuPastCaches : public ::testing::Test {
 protected:
  Sandbox box{cpu_kernels()};
  const Kernels& k = box.kernels();
  const Ctx& ctx = box.ctx();
};

class CpuPastCachesFormats : public CpuPastCaches, public ::testing::WithParamInterface<Dtype> {};

TEST_P(CpuPastCachesFormats, OutputsHaveTheBitsOfTheirParts) {
  const Dtype dtype = GetParam();
  const int64_t rows = 32800 / size_of(dtype), C = 1040, kParts = 8;
  const Tensor x = box.random(dtype, {1, rows, C}), d = box.random(dtype, x.shape);
  const Tensor w = box.random(dtype, {C}), exact = box.random({1, rows, C});
  const Tensor mean = box.random({1, rows}), rstd = box.random({1, rows});
  const auto each = [&](const std::function<void(const Ctx&, Tensor, Range)>& run) {
    const Tensor whole = box.empty(dtype, x.shape), parts = box.empty(dtype, x.shape);
    ASSERT_TRUE(goes_past_caches(whole, {x, d}));
    box.set_threads(3);
    run(ctx, whole, {0, rows});
    for (int64_t i = 0; i < kParts; ++i) run(ctx, parts, leaf(i, kParts, rows));
    EXPECT_TRUE(same_bits(whole, parts));
  };
  const auto part = [&](const Tensor& t, Range r) {
    return t.view({rows, t.size() / rows}).slice(r.begin, r.size());
  };
  const auto token = [&](const Tensor& t, Range r) {
    return part(t, r).view(t.shape.rank == 3 ? Shape{1, r.size(), C} : Shape{1, r.size()});
  };
  each([&](const Ctx& c, Tensor out, Range r) {
    k.norm_forward(c, token(out, r), token(mean, r), token(rstd, r), token(x, r), w, w);
  });
  each([&](const Ctx& c, Tensor out, Range r) {
    k.norm_backward_input(c, token(out, r), token(d, r), token(x, r), w, token(mean, r),
                          token(rstd, r));
  });
  each([&](const Ctx& c, Tensor out, Range r) {
    k.norm_forward(c, token(out, r), {}, token(rstd, r), token(x, r), w, {});
  });
  each([&](const Ctx& c, Tensor out, Range r) {
    k.residual_forward(c, token(out, r), token(x, r), token(d, r), w);
  });
  each([&](const Ctx& c, Tensor out, Range r) {
    k.residual_forward(c, token(out, r), token(x, r), token(d, r), {});
  });
  const Tensor gates = box.random(dtype, {1, rows, 2 * C}),
               half = box.random(dtype, {1, rows, C / 2});
  each([&](const Ctx& c, Tensor out, Range r) {
    k.swiglu_forward(c, part(out, r), part(gates, r));
  });
  each([&](const Ctx& c, Tensor out, Range r) {
    k.swiglu_backward(c, part(out, r), part(half, r), part(x, r));
  });
  each([&](const Ctx& c, Tensor out, Range r) { k.add(c, part(out, r), part(x, r), part(d, r)); });
  each([&](const Ctx& c, Tensor out, Range r) { k.gelu_forward(c, part(out, r), part(x, r)); });
  each([&](const Ctx& c, Tensor out, Range r) {
    k.gelu_backward(c, part(out, r), part(d, r), part(x, r));
  });
  each([&](const Ctx& c, Tensor out, Range r) { k.cast(c, part(out, r), part(exact, r)); });
}
INSTANTIATE_TEST_SUITE_P(Formats, CpuPastCachesFormats, ::testing::Values(Dtype::F32, Dtype::BF16),
                         dtype_name);

TEST_F(CpuPastCaches, ATableOfWords) {
  const int64_t V = 8200, C = 1040, B = 2, T = 9;
  const Tensor dout = box.random({B, T, C}), tokens = box.tokens({B, T}, V);
  const Tensor written = box.empty({V, C}), added = box.filled({V, C}, -0.0);
  const Tensor places = box.empty({T, C});
  ASSERT_TRUE(goes_past_caches(written, {}));
  box.set_threads(2);
  k.embed_backward(ctx, written, places, dout, tokens, Into::Write);
  k.embed_backward(ctx, added, places, dout, tokens, Into::Add);
  EXPECT_TRUE(same_bits(written, added));
}

TEST_F(CpuPastCaches, WhatOutputs) {
  const Tensor large = box.empty({8200, 1040}), other = box.empty({8200, 1040});
  EXPECT_TRUE(goes_past_caches(large, {other}));
  EXPECT_FALSE(goes_past_caches(large, {other, large})) << "in place";
  EXPECT_FALSE(goes_past_caches(large.slice(0, 8000), {other})) << "small";
  EXPECT_FALSE(goes_past_caches(box.empty({8200, 1041}), {other})) << "rows that end in a vector";
  EXPECT_FALSE(goes_past_caches(box.empty(Dtype::F16, {16400, 1040}), {other})) << "F16";
  const Tensor shifted{.ptr = large.data<float>() + kLanes / 2, .shape = {8199, 1040}};
  EXPECT_FALSE(goes_past_caches(shifted, {other})) << "not at a vector";
  const Tensor narrow = box.empty(Dtype::BF16, {16400, 1040});
  EXPECT_TRUE(goes_past_caches(narrow, {other}));
  const Tensor odd{
      .ptr = narrow.data<Bf16>() + kLanes / 2, .dtype = Dtype::BF16, .shape = {16390, 1040}};
  EXPECT_FALSE(goes_past_caches(odd, {other})) << "not at a vector of 16 bits";
}

/// Its own size is the last one of cpu_same_bits_products.cpp's weight gradients.
TEST_F(CpuPastCaches, WhatGradients) {
  const Tensor c = box.empty({530, 1008});
  Product large;
  large.M = 530, large.N = large.stride_c = 1008, large.K = 15;
  large.c = c.ptr, large.for_later = true;
  EXPECT_TRUE(goes_past_caches(large));
  const auto changed = [&](const auto& change) {
    Product p = large;
    change(p);
    return goes_past_caches(p);
  };
  EXPECT_FALSE(changed([](Product& p) { p.for_later = false; }));
  EXPECT_FALSE(changed([](Product& p) { p.into = Into::Add; }));
  EXPECT_FALSE(changed([](Product& p) { p.c_dtype = Dtype::BF16; }));
  EXPECT_FALSE(changed([](Product& p) { p.M = 520; }));
  EXPECT_FALSE(changed([](Product& p) { p.stride_c = 1009; }));
  EXPECT_FALSE(changed([](Product& p) { p.c = static_cast<float*>(p.c) + 1; }));
}

}  // namespace
}  // namespace ladder::test
