// What declarations cannot say of tensors that do not fit together.
// operations/refused.cpp has every operand of every operation.
#include <vector>

#include "tests/kernels/calls.h"
#include "tests/kernels/experts.h"
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

class Shapes : public ::testing::TestWithParam<Table> {
 protected:
  const Kernels& k = GetParam().kernels();
  Sandbox box{k};
  const Ctx& ctx = box.ctx();

  Tensor make(Shape shape) { return box.random(shape); }
  Tensor integers(Shape shape) { return box.zeros(Dtype::I32, shape); }
  /// operation(ctx, operands...) must be refused with words that contain `says`.
  template <class... P>
  void refused(const std::string& says, void (*operation)(const Ctx&, P...),
               const std::type_identity_t<P>&... operands) {
    expect_refused(says, [&] { operation(ctx, operands...); });
  }
};

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
  refused("matmul_backward_weight", k.matmul_backward_weight, dw, dout, make({1, 2, 4}),
          Into::Write);
  for (Fp8Scale* scale : {&more, &less, static_cast<Fp8Scale*>(nullptr)})
    refused("matmul_backward_weight", k.matmul_backward_weight, dw, dout,
            factor(Dtype::E4M3, {1, 2, 4}, scale), Into::Write);
}

// A product without terms is 0, and what no row has, none needs.
TEST_P(Shapes, ExtentsMayBeZero) {
  const Tensor out = make({2, 5}), bias = make({5}), dinp = make({2, 4});
  k.matmul_forward(ctx, out, make({2, 0}), make({5, 0}), bias, 8);
  for (int64_t i = 0; i < out.size(); ++i) EXPECT_EQ(at(out, i), at(bias, i % 5));
  k.matmul_backward_input(ctx, dinp, make({2, 0}), make({0, 4}), 8);
  for (int64_t i = 0; i < dinp.size(); ++i) EXPECT_EQ(at(dinp, i), 0);
  EXPECT_NO_THROW(k.matmul_forward(ctx, make({0, 5}), make({0, 4}), make({5, 4}), bias, 8));
}

// F64 is for `ref`: it is the specification, and gradients are checked with it.
TEST_P(Shapes, DoublesAreForRef) {
  Sandbox doubles{k, Dtype::F64};
  for (const Call& call : calls(doubles, {2, 3, 4, 4}, Dtype::F64)) {
    const std::vector<Tensor> out = call.outputs(doubles, Dtype::F64);
    if (k.name == std::string("ref"))
      EXPECT_NO_THROW(call.on(k, ctx, out, 0, 2)) << call.name;
    else
      EXPECT_THROW(call.on(k, ctx, out, 0, 2), CheckError) << call.name;
  }
}

TEST_P(Shapes, TokensOutsideTheVocabularyAreRefused) {
  const Tensor tokens = integers({1, 2}), wte = make({7, 3}), wpe = make({2, 3});
  const Tensor out = make({1, 2, 3}), logits = make({1, 2, 8}), losses = make({1});
  const Tensor max = make({1, 2}), sum = make({1, 2}), target = make({1, 2});
  const Tensor out_before = box.copy(out), sum_before = box.copy(sum);
  for (const int32_t bad : {-3, kElsewhere, kIgnore, 7, 1000}) {
    tokens.data<int32_t>()[1] = bad;
    if (bad != kElsewhere) {
      refused("of a vocabulary of 7", k.embed_forward, out, tokens, wte, wpe);
      refused("of a vocabulary of 7", k.embed_backward, wte, wpe, out, tokens, Into::Write);
    }
    if (bad == kIgnore) continue;
    refused("of a vocabulary of 7", k.cross_entropy, losses, Tensor{}, logits, tokens, 7, 1);
    if (bad == kElsewhere) continue;
    refused("of a vocabulary of 7", k.softmax_sum, sum, target, logits, max, tokens, 7);
    refused("of a vocabulary of 7", k.softmax_loss, losses, Tensor{}, logits, max, sum, target,
            tokens, 7, 1);
  }
  EXPECT_TRUE(same_bits(out, out_before));
  EXPECT_TRUE(same_bits(sum, sum_before));
  tokens.data<int32_t>()[1] = 6;
  EXPECT_NO_THROW(k.embed_forward(ctx, out, tokens, wte, wpe));
  refused("embed_forward", k.embed_forward, out, tokens, wte, make({1, 3}));
}

TEST_P(Shapes, ExpertsOfARouter) {
  const Tensor logits = make({2, 3, 4}), chosen = integers({2, 3, 2}), weight = make({2, 3, 2});
  const Tensor load = integers({2, 4}), losses = make({2, 2}), scores = make({2, 3, 4});
  const auto& forward = k.route_forward;
  const auto& backward = k.route_backward;
  EXPECT_NO_THROW(forward(ctx, chosen, weight, scores, load, losses, logits, make({4}), {}));
  refused(
      "route_forward: scores is (2, 3, 4), must be (B,T,E>=k) with B = 2 of expert, T = 3 of "
      "expert, k = 5 of expert",
      forward, integers({2, 3, 5}), make({2, 3, 5}), scores, load, losses, logits, {}, {});
  EXPECT_NO_THROW(backward(ctx, scores, weight, chosen, scores, load, logits, {}, 0, 0));
  for (const int32_t bad : {-1, kElsewhere, 4}) {
    chosen.data<int32_t>()[3] = bad;
    refused("of 4", backward, scores, weight, chosen, scores, load, logits, {}, 0, 0);
  }
}

TEST_P(Shapes, RowsOfExperts) {
  const Tensor expert = integers({2, 3, 2});
  const ExpertRows rows = room_for(box, expert, 4);
  EXPECT_NO_THROW(k.expert_rows(ctx, rows, expert, 0));
  const auto with_room = [&](int64_t M) {
    return ExpertRows{rows.offsets, rows.row, integers({M})};
  };
  refused("expert_rows: room for 11 rows, not 12", k.expert_rows, with_room(11), expert, 0);
  EXPECT_NO_THROW(k.expert_rows(ctx, with_room(8), expert, 1));
  refused("expert_rows: room for 7 rows, not 8", k.expert_rows, with_room(7), expert, 1);
  for (const int32_t bad : {-1, 4}) {
    expert.data<int32_t>()[3] = bad;
    refused("of 4", k.expert_rows, rows, expert, 0);
  }
}

TEST_P(Shapes, RowsOfExpertsPastTheLast) {
  const Tensor expert = choices(box, 2, 3, 2, 4), y = make({12, 5}), x = make({2, 3, 5});
  const ExpertRows rows = sorted(box, expert, 4);
  const Tensor w = make({4, 6, 5}), out = make({12, 6});
  rows.offsets.data<int32_t>()[4] = 13;
  refused("13 rows of experts in 12", k.grouped_matmul_forward, out, y, w, rows, 1);
  rows.offsets.data<int32_t>()[4] = 12;
  rows.offsets.data<int32_t>()[1] = -1;
  refused("rows of experts", k.gather_rows, y, x, rows);
}

INSTANTIATE_TEST_SUITE_P(Tables, Shapes,
                         ::testing::Values(Table{ref_kernels, 1}, Table{cpu_kernels, 2}),
                         table_name);

}  // namespace
}  // namespace ladder::test
