// Outputs that are so large that `cpu` stores them past the caches.
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/gemm/finish.h"
#include "kernels/tree.h"
#include "tests/kernels/calls.h"
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
  const CallSizes s{.B = 32800 / size_of(dtype), .T = 1, .C = 1040};
  Sandbox values{cpu_kernels(), dtype};
  for (const Call& call : calls_of_rows(values, s, dtype)) {
    Sandbox room{cpu_kernels()};
    room.set_threads(3);
    const auto whole = call.outputs(room, dtype), parts = call.outputs(room, dtype);
    ASSERT_TRUE(goes_past_caches(whole[0], {}));
    call.on(k, room.ctx(), whole, 0, s.B);
    for (int64_t i = 0; i < 8; ++i) {
      const Range own = leaf(i, 8, s.B);
      std::vector<Tensor> out;
      for (const Tensor& part : parts) out.push_back(part.slice(own.begin, own.size()));
      call.on(k, room.ctx(), out, own.begin, own.size());
    }
    EXPECT_TRUE(same_bits(whole[0], parts[0])) << call.name;
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, CpuPastCachesFormats, ::testing::Values(Dtype::F32, Dtype::BF16),
                         dtype_name);

TEST_F(CpuPastCaches, ACast) {
  const Tensor x = box.random({16400, 1040});
  const Tensor whole = box.empty(Dtype::BF16, x.shape), parts = box.copy(whole);
  ASSERT_TRUE(goes_past_caches(whole, {x}));
  k.cast(ctx, whole, x);
  for (const Range& own : {leaf(0, 3, 16400), leaf(1, 3, 16400), leaf(2, 3, 16400)})
    k.cast(ctx, parts.slice(own.begin, own.size()), x.slice(own.begin, own.size()));
  EXPECT_TRUE(same_bits(whole, parts));
}

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

/// The size of `large` is the last one of the weight gradients of cpu_products.cpp.
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
