// HeadGrad: the sum over chunks is the tree of the whole micro-batch.
#include <gtest/gtest.h>

#include "chapters/17_head_chunks/chunked_head.h"

namespace ladder::test {
namespace {

const GptConfig kConfig{.name = "one",
                        .layers = 1,
                        .heads = 1,
                        .channels = 1,
                        .seq_len = 1,
                        .positions = 1,
                        .vocab = 1,
                        .padded_vocab = 1};

class HeadGradSum : public ::testing::Test {
 protected:
  HeadGradSum() { ctx_.kernels = &ref_kernels(); }

  /// 1e8, -1e8, 1, 1, ...: a sum that shows its order. Chunk j holds gradient j alone.
  float chunked(int64_t chunks, Into into, float before) {
    HeadGrad grad(arena_, kConfig, chunks, /*steps=*/2);
    const Tensor dw = arena_.zeros(Mem::Grad, "dw", Dtype::F32, {1, 1});
    *dw.data<float>() = before;
    grad.begin(dw, into, chunks);
    for (int64_t j = 0; j < chunks; ++j) {
      grad.begin_chunk(j);
      float& sum = *grad.sum().data<float>();
      sum = grad.into() == Into::Write ? value(j) : sum + value(j);
      grad.end_chunk(ctx_, j);
    }
    return *dw.data<float>();
  }
  static float value(int64_t j) { return j == 1 ? 1e8f : j == 2 ? -1e8f : 1.0f; }

  Arena arena_;
  Ctx ctx_;
};

TEST_F(HeadGradSum, IsATree) {
  // (1 + 1e8) + (-1e8 + 1): the ones are lost. A running sum would keep the last of them.
  EXPECT_EQ(chunked(4, Into::Write, 7), 0.0f);
  EXPECT_EQ((((1.0f + 1e8f) + -1e8f) + 1.0f), 1.0f);
  EXPECT_EQ(chunked(8, Into::Write, 7), 4.0f);
  EXPECT_EQ(chunked(5, Into::Write, 7), 1.0f);
}

TEST_F(HeadGradSum, IsFinishedBeforeItIsAdded) {
  EXPECT_EQ(chunked(4, Into::Add, 7), 7.0f);
  EXPECT_EQ(chunked(2, Into::Add, -1e8f), 0.0f);  // 1 + 1e8 first
  EXPECT_EQ(chunked(1, Into::Add, 7), 8.0f);
}

}  // namespace
}  // namespace ladder::test
