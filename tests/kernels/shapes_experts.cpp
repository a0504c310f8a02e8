// Tensors of routers and experts that do not fit together are refused by name, and so are experts
// that do not exist.
#include "tests/kernels/experts.h"
#include "tests/kernels/same_bits.h"

namespace ladder::test {
namespace {

class ExpertShapes : public Refusals {
 protected:
  Tensor whole(Shape shape) { return box.zeros(Dtype::I32, shape); }
};

TEST_P(ExpertShapes, OfARouter) {
  const Tensor logits = make({2, 3, 4}), chosen = whole({2, 3, 2}), weight = make({2, 3, 2});
  const Tensor load = whole({2, 4}), losses = make({2, 2}), scores = make({2, 3, 4});
  const auto& forward = k.route_forward;
  const auto& backward = k.route_backward;
  EXPECT_NO_THROW(forward(ctx, chosen, weight, scores, load, losses, logits, make({4}), {}));
  refused(
      "route_forward: scores is (2, 3, 4), must be (B,T,E>=k) with B = 2 of expert, T = 3 of "
      "expert, k = 5 of expert",
      forward, whole({2, 3, 5}), make({2, 3, 5}), scores, load, losses, logits, {}, {});
  EXPECT_NO_THROW(backward(ctx, scores, weight, chosen, scores, load, logits, {}, 0, 0));
  for (const int32_t bad : {-1, kElsewhere, 4}) {
    chosen.data<int32_t>()[3] = bad;
    refused("of 4", backward, scores, weight, chosen, scores, load, logits, {}, 0, 0);
  }
}

TEST_P(ExpertShapes, OfRows) {
  const Tensor expert = whole({2, 3, 2});
  const ExpertRows rows = room_for(box, expert, 4);
  EXPECT_NO_THROW(k.expert_rows(ctx, rows, expert, 0));
  const auto with_room = [&](int64_t M) { return ExpertRows{rows.offsets, rows.row, whole({M})}; };
  refused("expert_rows: room for 11 rows, not 12", k.expert_rows, with_room(11), expert, 0);
  EXPECT_NO_THROW(k.expert_rows(ctx, with_room(8), expert, 1));
  refused("expert_rows: room for 7 rows, not 8", k.expert_rows, with_room(7), expert, 1);
  for (const int32_t bad : {-1, 4}) {
    expert.data<int32_t>()[3] = bad;
    refused("of 4", k.expert_rows, rows, expert, 0);
  }
}

TEST_P(ExpertShapes, RowsPastTheLast) {
  const Tensor expert = choices(box, 2, 3, 2, 4), y = make({12, 5}), x = make({2, 3, 5});
  const ExpertRows rows = sorted(box, expert, 4);
  const Tensor w = make({4, 6, 5}), out = make({12, 6});
  rows.offsets.data<int32_t>()[4] = 13;
  refused("13 rows of experts in 12", k.grouped_matmul_forward, out, y, w, rows, 1);
  rows.offsets.data<int32_t>()[4] = 12;
  rows.offsets.data<int32_t>()[1] = -1;
  refused("rows of experts", k.gather_rows, y, x, rows);
}

INSTANTIATE_TEST_SUITE_P(Tables, ExpertShapes,
                         ::testing::Values(Table{ref_kernels, 1}, Table{cpu_kernels, 2}),
                         table_name);

}  // namespace
}  // namespace ladder::test
