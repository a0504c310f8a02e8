// Tensors that do not fit together are refused before anything is read or written.
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class Shapes : public ::testing::Test {
 protected:
  Sandbox box{ref_kernels()};
  const Kernels& k = ref_kernels();
  const Ctx& ctx = box.ctx();
  Tensor make(Shape shape) { return box.random(shape); }
};

TEST_F(Shapes, ErrorsNameOperationOperandAndShapes) {
  try {
    k.norm_forward(ctx, make({2, 3, 4}), make({2, 3}), make({2, 3}), make({2, 3, 4}), make({5}),
                   make({4}));
    FAIL();
  } catch (const CheckError& error) {
    EXPECT_NE(std::string(error.what()).find("norm_forward: w is (5), not (4)"), std::string::npos)
        << error.what();
  }
}

TEST_F(Shapes, WrongExtentsAreRefused) {
  const Tensor inp = make({2, 3, 4});
  EXPECT_THROW(k.matmul_forward(ctx, make({2, 3, 5}), inp, make({5, 3}), Tensor{}, 8), CheckError);
  EXPECT_THROW(k.matmul_forward(ctx, make({7, 5}), inp, make({5, 4}), Tensor{}, 8), CheckError);
  EXPECT_THROW(k.matmul_forward(ctx, make({6, 5}), inp, make({5, 4}), make({4}), 8), CheckError);
  EXPECT_THROW(k.matmul_forward(ctx, make({6, 5}), inp, make({5, 4}), Tensor{}, 0), CheckError);
  EXPECT_THROW(k.matmul_backward_weight(ctx, make({5, 4}), make({2, 2, 5}), inp, Into::Write),
               CheckError);
  EXPECT_THROW(k.attention_forward(ctx, make({2, 3, 4}), make({2, 3, 3}), make({2, 3, 12})),
               CheckError);
  EXPECT_THROW(k.add(ctx, inp, inp, make({2, 3, 5})), CheckError);
  EXPECT_THROW(k.gelu_forward(ctx, make({24}), inp), CheckError);
  EXPECT_THROW(k.squared_norm(ctx, box.zeros(Dtype::I64, {2, kLimbs - 1}), make({2, 8})),
               CheckError);
  EXPECT_NO_THROW(k.matmul_forward(ctx, make({6, 5}), inp, make({5, 4}), make({5}), 8));
}

TEST_F(Shapes, WrongDtypesAndNullsAreRefused) {
  const Tensor x = make({4}), doubles = box.zeros(Dtype::F64, {4});
  const Tensor sum = box.filled({4}, 5), same = box.copy(sum);
  EXPECT_THROW(k.add(ctx, sum, x, doubles), CheckError);
  EXPECT_TRUE(same_bits(sum, same));
  EXPECT_THROW(k.squared_norm(ctx, box.zeros(Dtype::F64, {1, kLimbs}), make({1, 0})), CheckError);
  EXPECT_THROW(k.add(ctx, x, x, Tensor{}), CheckError);
  EXPECT_THROW(k.scale(ctx, box.zeros(Dtype::I32, {4}), 1), CheckError);
  EXPECT_THROW(k.sgd_update(ctx, x, doubles, x, SgdStep{}), CheckError);
  EXPECT_NO_THROW(k.sgd_update(ctx, x, Tensor{}, x, SgdStep{}));
}

TEST_F(Shapes, TokensOutsideTheVocabularyAreRefused) {
  const Tensor tokens = box.zeros(Dtype::I32, {1, 2}), wte = make({7, 3}), wpe = make({2, 3});
  const Tensor out = make({1, 2, 3}), logits = make({1, 2, 8}), losses = make({1});
  const Tensor max = make({1, 2}), sum = make({1, 2}), target = make({1, 2});
  for (const int32_t bad : {-3, kElsewhere, kIgnore, 7, 1000}) {
    tokens.data<int32_t>()[1] = bad;
    if (bad != kElsewhere) {
      EXPECT_THROW(k.embed_forward(ctx, out, tokens, wte, wpe), CheckError);
      EXPECT_THROW(k.embed_backward(ctx, wte, wpe, out, tokens, Into::Write), CheckError);
    }
    if (bad == kIgnore) continue;
    EXPECT_THROW(k.cross_entropy(ctx, losses, Tensor{}, logits, tokens, 7, 1), CheckError);
    if (bad == kElsewhere) continue;
    EXPECT_THROW(k.softmax_sum(ctx, sum, target, logits, max, tokens, 7), CheckError);
    EXPECT_THROW(k.softmax_loss(ctx, losses, Tensor{}, logits, max, sum, target, tokens, 7, 1),
                 CheckError);
  }
  EXPECT_THROW(k.cross_entropy(ctx, losses, Tensor{}, logits, tokens, 9, 1), CheckError);
  tokens.data<int32_t>()[1] = 6;
  EXPECT_NO_THROW(k.embed_forward(ctx, out, tokens, wte, wpe));
  EXPECT_THROW(k.embed_forward(ctx, out, tokens, wte, make({1, 3})), CheckError);
}

TEST_F(Shapes, APartOfTheVocabularyMayBeAllPadding) {
  const Tensor logits = make({1, 2, 8}), losses = make({1}), tokens = box.zeros(Dtype::I32, {1, 2});
  const Tensor max = make({1, 2}), sum = make({1, 2}), target = make({1, 2}), wrong = make({2, 1});
  for (int64_t t = 0; t < 2; ++t) tokens.data<int32_t>()[t] = kElsewhere;
  EXPECT_THROW(k.cross_entropy(ctx, losses, Tensor{}, logits, tokens, 0, 1), CheckError);
  EXPECT_NO_THROW(k.softmax_max(ctx, max, logits, 0));
  EXPECT_NO_THROW(k.softmax_sum(ctx, sum, target, logits, max, tokens, 0));
  for (const int64_t vocab : {-1, 9}) {
    EXPECT_THROW(k.softmax_max(ctx, max, logits, vocab), CheckError);
    EXPECT_THROW(k.softmax_sum(ctx, sum, target, logits, max, tokens, vocab), CheckError);
    EXPECT_THROW(k.softmax_loss(ctx, losses, Tensor{}, logits, max, sum, target, tokens, vocab, 1),
                 CheckError);
  }
  EXPECT_THROW(k.softmax_max(ctx, wrong, logits, 8), CheckError);
  EXPECT_THROW(k.softmax_sum(ctx, sum, target, logits, wrong, tokens, 8), CheckError);
  EXPECT_THROW(k.softmax_loss(ctx, losses, wrong, logits, max, sum, target, tokens, 8, 1),
               CheckError);
  EXPECT_THROW(k.softmax_loss(ctx, make({2}), Tensor{}, logits, max, sum, target, tokens, 8, 1),
               CheckError);
}

}  // namespace
}  // namespace ladder::test
