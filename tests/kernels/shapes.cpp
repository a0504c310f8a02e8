// Tensors that do not fit together are refused before anything is read or written.
#include <vector>

#include "tests/kernels/calls.h"
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

class Shapes : public ::testing::TestWithParam<Table> {
 protected:
  const Kernels& k = GetParam().kernels();
  Sandbox box{k};
  const Ctx& ctx = box.ctx();
  Tensor make(Shape shape) { return box.random(shape); }
};

TEST_P(Shapes, ErrorsNameOperationOperandAndShapes) {
  const Tensor x = make({2, 3, 4}), rows = make({2, 3}), w = make({4}), wrong = make({5});
  const Tensor limbs = box.zeros(Dtype::I64, {2, kLimbs}), one = box.zeros(Dtype::I64, {1, kLimbs});
  expect_refused("norm_forward: w is (5), not (4)",
                 [&] { k.norm_forward(ctx, x, rows, rows, x, wrong, w); });
  expect_refused("norm_backward_input: dout is (5), not (2, 3, 4)",
                 [&] { k.norm_backward_input(ctx, x, wrong, x, w, rows, rows); });
  expect_refused("norm_backward_weight: dw is (5), not (4)",
                 [&] { k.norm_backward_weight(ctx, wrong, w, x, x, rows, rows, Into::Write); });
  expect_refused("matmul_forward: inp is (6, 4), not (6, 3)", [&] {
    k.matmul_forward(ctx, make({6, 5}), x, make({5, 3}), Tensor{}, 1);
  });
  expect_refused("matmul_backward_input: dout is (2, 5), not (6, 5)", [&] {
    k.matmul_backward_input(ctx, x, make({2, 5}), make({5, 4}), 1);
  });
  expect_refused(
      "attention_forward: 0 columns for keys and values in qkv, not 4 times a divisor of 2", [&] {
        k.attention_forward(ctx, x, make({2, 2, 3}), x);
      });
  expect_refused("attention_backward: lse is (2, 2, 4), not (2, 2, 3)", [&] {
    const Tensor qkv = make({2, 3, 12});
    k.attention_backward(ctx, qkv, x, qkv, x, make({2, 2, 4}));
  });
  expect_refused("attention_forward: 3 heads do not divide 4 channels", [&] {
    k.attention_forward(ctx, x, make({2, 3, 3}), make({2, 3, 12}));
  });
  expect_refused("attention_merge: later m is (2, 1, 3), not (2, 2, 3)", [&] {
    const Tensor m = make({2, 2, 3});
    k.attention_merge(ctx, x, m, m, x, make({2, 1, 3}), m);
  });
  expect_refused("copy_columns: 3 columns from 2 of 4 to 0 of 4",
                 [&] { k.copy_columns(ctx, x, 0, x, 2, 3); });
  expect_refused("adaptive_clip: grad_limbs is (1, 12), not (2, 12)",
                 [&] { k.adaptive_clip(ctx, rows, one, limbs, 1); });
  expect_refused("adaptive_clip: weight_limbs is (1, 12), not (2, 12)",
                 [&] { k.adaptive_clip(ctx, rows, limbs, one, 1); });
}

TEST_P(Shapes, HeadsAndGatesAreRefusedByName) {
  const Tensor qkv = make({2, 3, 24}), angles = make({3, 4}), h = make({2, 3, 8});
  EXPECT_NO_THROW(k.rope(ctx, qkv, angles, 2, false));
  EXPECT_NO_THROW(k.rope(ctx, qkv, angles, 4, false));
  expect_refused("rope: 16 columns for keys and values in qkv, not 8 times a divisor of 3", [&] {
    k.rope(ctx, make({2, 3, 28}), angles, 3, false);
  });
  expect_refused("rope: 12 columns for keys and values in qkv",
                 [&] { k.rope(ctx, qkv, angles, 3, false); });
  expect_refused("rope: -4 columns", [&] { k.rope(ctx, qkv, angles, 7, false); });
  expect_refused("rope: 0 heads", [&] { k.rope(ctx, qkv, angles, 0, false); });
  expect_refused("rope: 3 tokens, angles of 2", [&] { k.rope(ctx, qkv, make({2, 4}), 2, false); });
  expect_refused("rope: heads of 3 channels cannot be cut into pairs", [&] {
    k.rope(ctx, qkv, make({3, 3}), 2, false);
  });
  expect_refused("rope: angles is null", [&] { k.rope(ctx, qkv, {.shape = {3, 4}}, 2, false); });
  expect_refused("rope: angles has the wrong dtype", [&] {
    k.rope(ctx, qkv, box.zeros(Dtype::I32, {3, 4}), 2, false);
  });
  expect_refused("swiglu_forward: inp is (2, 3, 8), not (2, 3, 16)",
                 [&] { k.swiglu_forward(ctx, h, h); });
  expect_refused("swiglu_backward: inp is (2, 3, 24), not (2, 3, 16)",
                 [&] { k.swiglu_backward(ctx, qkv, h, qkv); });
  expect_refused("swiglu_backward: dinp is (2, 3, 8), not (2, 3, 24)",
                 [&] { k.swiglu_backward(ctx, h, h, qkv); });
  expect_refused("norm_forward: rstd is null",
                 [&] { k.norm_forward(ctx, h, {}, {}, h, make({8}), {}); });
}

TEST_P(Shapes, WrongExtentsAreRefused) {
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

TEST_P(Shapes, WrongDtypesAndNullsAreRefused) {
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

TEST_P(Shapes, FactorsOfAMatmulAreFloats) {
  const Tensor w = make({5, 4}), inp = make({1, 2, 4}), out = make({1, 2, 5});
  const Tensor whole = box.zeros(Dtype::I32, {1, 2, 5}), whole_w = box.zeros(Dtype::I32, {5, 4});
  EXPECT_THROW(k.matmul_forward(ctx, out, inp, whole_w, Tensor{}, 1), CheckError);
  EXPECT_THROW(k.matmul_backward_input(ctx, inp, whole, w, 1), CheckError);
  EXPECT_THROW(k.matmul_backward_weight(ctx, w, whole, inp, Into::Write), CheckError);
  EXPECT_THROW(
      k.matmul_backward_weight(ctx, whole_w, whole, box.zeros(Dtype::I32, {1, 2, 4}), Into::Write),
      CheckError);
}

TEST_P(Shapes, Fp8StandsBeside16BitsWithALegalScale) {
  const auto factor = [&](Dtype dtype, Shape shape, Fp8Scale* scale) {
    Tensor x = box.zeros(dtype, shape);
    x.fp8 = scale;
    return x;
  };
  Fp8Scale one, most{.scale = kMaxFp8Scale}, more{.scale = 2 * kMaxFp8Scale};
  Fp8Scale least{.scale = 1 / kMaxFp8Scale}, less{.scale = 0.5F / kMaxFp8Scale};
  const Tensor dw = make({5, 4}), dout = factor(Dtype::E5M2, {1, 2, 5}, &one);
  for (const Dtype dtype : {Dtype::BF16, Dtype::F16}) {
    EXPECT_NO_THROW(
        k.matmul_backward_weight(ctx, dw, dout, box.zeros(dtype, {1, 2, 4}), Into::Write));
    EXPECT_NO_THROW(k.matmul_backward_weight(ctx, dw, box.zeros(dtype, {1, 2, 5}),
                                             factor(Dtype::E4M3, {1, 2, 4}, &one), Into::Write));
  }
  for (Fp8Scale* scale : {&most, &least})
    EXPECT_NO_THROW(k.matmul_backward_weight(ctx, dw, dout, factor(Dtype::E4M3, {1, 2, 4}, scale),
                                             Into::Write));
  if (k.name == std::string("ref")) return;  // it widens all that is narrow, and then looks
  EXPECT_THROW(k.matmul_backward_weight(ctx, dw, dout, make({1, 2, 4}), Into::Write), CheckError);
  for (Fp8Scale* scale : {&more, &less, static_cast<Fp8Scale*>(nullptr)})
    EXPECT_THROW(
        k.matmul_backward_weight(ctx, dw, dout, factor(Dtype::E4M3, {1, 2, 4}, scale), Into::Write),
        CheckError);
}

// A product without terms is 0, and what no row has, none needs.
TEST_P(Shapes, ExtentsMayBeZero) {
  const Tensor out = make({2, 5}), bias = make({5}), dw = make({5, 4}), dinp = make({2, 4});
  k.matmul_forward(ctx, out, make({2, 0}), make({5, 0}), bias, 8);
  for (int64_t i = 0; i < out.size(); ++i) EXPECT_EQ(at(out, i), at(bias, i % 5));
  k.matmul_backward_input(ctx, dinp, make({2, 0}), make({0, 4}), 8);
  for (int64_t i = 0; i < dinp.size(); ++i) EXPECT_EQ(at(dinp, i), 0);
  for (const auto& [B, T] : {std::pair{0, 3}, {3, 0}}) {
    for (int64_t i = 0; i < dw.size(); ++i) set(dw, i, 7);
    k.matmul_backward_weight(ctx, dw, make({B, T, 5}), make({B, T, 4}), Into::Write);
    for (int64_t i = 0; i < dw.size(); ++i) EXPECT_EQ(at(dw, i), 0) << B << " " << T;
  }
  EXPECT_NO_THROW(k.matmul_forward(ctx, make({0, 5}), make({0, 4}), make({5, 4}), bias, 8));
}

// F64 is for `ref`: it is the specification, and gradients are checked with it.
TEST_P(Shapes, DoublesAreForRef) {
  const bool ref = k.name == std::string("ref");
  const auto expect = [&](const char* name, const auto& call) {
    if (ref)
      EXPECT_NO_THROW(call()) << name;
    else
      EXPECT_THROW(call(), CheckError) << name;
  };
  Sandbox doubles{k, Dtype::F64};
  for (const Call& call : calls(doubles, {2, 3, 4, 4}, Dtype::F64)) {
    const std::vector<Tensor> out = call.outputs(doubles, Dtype::F64);
    expect(call.name, [&] { call.on(k, ctx, out, 0, 2); });
  }
  const auto make = [&](Shape shape) { return doubles.filled(shape, 1); };
  const auto limbs = [&](int64_t rows) { return box.zeros(Dtype::I64, {rows, kLimbs}); };
  const Tensor x = make({2, 3, 4}), dx = make({2, 3, 4}), rows = make({2, 3}), w = make({4});
  const Tensor lse = make({2, 2, 3}), square = make({4, 4}), kv = make({2, 3, 8});
  const Tensor tokens = box.zeros(Dtype::I32, {2, 3}), losses = make({2});
  const AttentionPlace place{3, {0, 1}, 0};
  expect("piece", [&] { k.attention_piece_forward(ctx, dx, lse, lse, x, kv, place); });
  expect("merge", [&] { k.attention_merge(ctx, dx, lse, lse, x, lse, lse); });
  expect("finish", [&] { k.attention_finish(ctx, dx, lse, x, lse, lse); });
  expect("piece, back", [&] { k.attention_piece_backward(ctx, dx, kv, x, x, kv, x, lse, place); });
  expect("columns", [&] { k.copy_columns(ctx, dx, 0, x, 1, 2); });
  expect("max", [&] { k.softmax_max(ctx, rows, x, 4); });
  expect("sum", [&] { k.softmax_sum(ctx, rows, rows, x, rows, tokens, 4); });
  expect("loss", [&] { k.softmax_loss(ctx, losses, dx, x, rows, rows, rows, tokens, 4, 1); });
  expect("squared_norm", [&] { k.squared_norm(ctx, limbs(4), square); });
  expect("adaptive_clip", [&] { k.adaptive_clip(ctx, square, limbs(4), limbs(4), 1); });
  expect("sgd", [&] { k.sgd_update(ctx, w, w, w, SgdStep{}); });
  expect("adamw", [&] { k.adamw_update(ctx, w, w, w, w, AdamStep{}); });
  expect("lion", [&] { k.lion_update(ctx, w, w, w, LionStep{}); });
  expect("adafactor", [&] { k.adafactor_update(ctx, square, w, w, square, AdafactorStep{}); });
}

TEST_P(Shapes, TokensOutsideTheVocabularyAreRefused) {
  const Tensor tokens = box.zeros(Dtype::I32, {1, 2}), wte = make({7, 3}), wpe = make({2, 3});
  const Tensor out = make({1, 2, 3}), logits = make({1, 2, 8}), losses = make({1});
  const Tensor max = make({1, 2}), sum = make({1, 2}), target = make({1, 2});
  const Tensor out_before = box.copy(out), sum_before = box.copy(sum);
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
  EXPECT_TRUE(same_bits(out, out_before));
  EXPECT_TRUE(same_bits(sum, sum_before));
  EXPECT_THROW(k.cross_entropy(ctx, losses, Tensor{}, logits, tokens, 9, 1), CheckError);
  tokens.data<int32_t>()[1] = 6;
  EXPECT_NO_THROW(k.embed_forward(ctx, out, tokens, wte, wpe));
  EXPECT_THROW(k.embed_forward(ctx, out, tokens, wte, make({1, 3})), CheckError);
}

TEST_P(Shapes, APartOfTheVocabularyMayBeAllPadding) {
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

INSTANTIATE_TEST_SUITE_P(Tables, Shapes,
                         ::testing::Values(Table{ref_kernels, 1}, Table{cpu_kernels, 2}),
                         table_name);

}  // namespace
}  // namespace ladder::test
