// A head whose weights are the token embedding: where parameters and gradients lie, and how the two
// sums of the embedding's gradient become one.
#include <cstring>

#include <gtest/gtest.h>

#include "common/model/parts.h"
#include "common/model/tied_head.h"
#include "common/random.h"
#include "kernels/arena.h"
#include "kernels/kernels.h"

namespace ladder {
namespace {

const std::string kEmbedding = "transformer.wte.weight";

GptConfig small_tied() {
  GptConfig config = preset("nano");
  config.layers = 2;
  config.channels = 40;
  config.vocab = 250;  // 6 rows of padding
  config.tied_head = true;
  return config;
}

/// A tensor as bytes: -0 is not 0.
std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.ptr), static_cast<size_t>(tensor.bytes())};
}

class TiedHead : public testing::Test {
 protected:
  /// The gradient of one micro-batch, other numbers for each.
  Tensor gradient(int64_t micro) {
    const Tensor flat = arena_.zeros(Mem::Grad, "grads", Dtype::F32, {grads_.size()});
    const Random random(static_cast<uint64_t>(micro), "gradient");
    for (int64_t i = 0; i < flat.size(); ++i)
      flat.data<float>()[i] = static_cast<float>(random.normal_pair(static_cast<uint64_t>(i))[0]);
    return flat;
  }
  void add(const Tensor& to, const Tensor& from) { ctx_.kernels->add(ctx_, to, to, from); }

  ParamLayout layout_{small_tied(), 4}, grads_ = layout_.grads();
  Arena arena_;
  Ctx ctx_{.kernels = &ref_kernels(), .scratch{}, .documents{}};
};

TEST_F(TiedHead, IsTheEmbeddingAndHasGradientsOfItsOwn) {
  EXPECT_EQ(layout_.find("lm_head.weight"), nullptr);
  EXPECT_EQ(layout_.home_of(3), 0);
  EXPECT_EQ(layout_.section(3).size(), 0);
  EXPECT_EQ(grads_.section(3).begin, layout_.size());
  EXPECT_EQ(grads_.section(3).size(), layout_.section(0).size());

  const Tensor params = arena_.zeros(Mem::Param, "params", Dtype::F32, {layout_.size()});
  const GptTensors w = layout_.view(params);
  EXPECT_EQ(w.head_w.ptr, w.embed.wte.ptr);
  EXPECT_EQ(w.head_w.shape, w.embed.wte.shape);
  EXPECT_EQ(w.norm.w.ptr, layout_.tensor(params, layout_.spec("transformer.ln_f.weight")).ptr);

  const Tensor both = gradient(0);
  const GptTensors dw = grads_.view(both);
  const auto at = [&](const Tensor& tensor) { return tensor.data<float>() - both.data<float>(); };
  EXPECT_EQ(at(dw.embed.wte), 0);
  EXPECT_EQ(at(dw.head_w), layout_.size());
  EXPECT_EQ(at(dw.norm.w), layout_.size() + layout_.spec("transformer.ln_f.weight").offset);
}

TEST_F(TiedHead, AddsTheHeadToTheEmbeddingOnce) {
  const Tensor both = gradient(0), before = gradient(0);
  const GptTensors dw = grads_.view(before);
  const Tensor sum = join_tied_head(ctx_, layout_, both);
  ASSERT_EQ(sum.size(), layout_.size());
  const GptTensors joined = layout_.view(sum);
  for (int64_t i = 0; i < joined.head_w.size(); ++i)
    ASSERT_EQ(joined.head_w.data<float>()[i],
              dw.embed.wte.data<float>()[i] + dw.head_w.data<float>()[i]);
  EXPECT_TRUE(bytes_of(joined.embed.wpe) == bytes_of(dw.embed.wpe));
  EXPECT_TRUE(bytes_of(joined.norm.w) == bytes_of(dw.norm.w));
  EXPECT_TRUE(bytes_of(joined.norm.b) == bytes_of(dw.norm.b));
  EXPECT_TRUE(bytes_of(joined.blocks[1].mlp.proj_w) == bytes_of(dw.blocks[1].mlp.proj_w));
}

// This is why the two sums stay apart. If they were added in each micro-batch, the bits would
// depend on how the batch is cut.
TEST_F(TiedHead, NegativeControlAddedInEachMicroBatchDiffers) {
  const auto embedding = [&](const Tensor& sum) {
    return bytes_of(layout_.tensor(sum, layout_.spec(kEmbedding)));
  };
  const Tensor apart = gradient(0);
  add(apart, gradient(1));
  const Tensor once = join_tied_head(ctx_, layout_, apart);
  const Tensor each = join_tied_head(ctx_, layout_, gradient(0));
  add(each, join_tied_head(ctx_, layout_, gradient(1)));
  EXPECT_TRUE(embedding(once) != embedding(each));

  const Tensor again = gradient(0);
  add(again, gradient(1));
  EXPECT_TRUE(embedding(once) == embedding(join_tied_head(ctx_, layout_, again)));
  EXPECT_TRUE(embedding(once) != embedding(join_tied_head(ctx_, layout_, again))) << "added twice";
}

// In one buffer the embedding would add to what the head has written, in each micro-batch anew.
TEST_F(TiedHead, OneBufferIsNotAddedTo) {
  const int64_t T = 3, C = layout_.config().channels;
  const Tensor tokens = arena_.zeros(Mem::Activation, "tokens", Dtype::I32, {2, T}),
               dout = gradient(2).first(2 * T * C).view({2, T, C});
  const GptTensors joined = layout_.view(gradient(1).first(layout_.size()));
  EXPECT_THROW(embed_backward_weight(ctx_, joined.embed, dout, tokens, Into::Add), CheckError);
}

}  // namespace
}  // namespace ladder
