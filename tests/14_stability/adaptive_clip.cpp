// Adaptive clipping: every row of a gradient is bound by its weights.
#include "chapters/14_stability/adaptive_clip.h"

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

class Agc : public ::testing::TestWithParam<const Kernels& (*)()> {
 protected:
  Sandbox box{GetParam()()};
  static constexpr float kLimit = 0.1F;
  const GptConfig config{.name = "test",
                         .layers = 2,
                         .heads = 3,
                         .channels = 15,
                         .seq_len = 5,
                         .positions = 7,
                         .vocab = 11,
                         .padded_vocab = 13};
  const ParamLayout layout{config};
  Arena arena;

  /// Rows that have a norm of their own: units of a matrix, or a whole vector.
  std::vector<Tensor> rows(const Tensor& flat, const ParamSpec& spec) const {
    const Tensor live = layout.tensor(flat, spec).first(spec.rows);
    std::vector<Tensor> all;
    if (!spec.is_matrix()) return {live};
    for (int64_t r = 0; r < spec.rows; ++r) all.push_back(live.slice(r, 1));
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, Agc, ::testing::Values(ref_kernels, cpu_kernels),
                         [](const auto& table) { return std::string(table.param().name); });

TEST_P(Agc, EveryRowIsBoundByItsWeights) {
  const Tensor w = box.random({layout.size()}), g = box.random({layout.size()}, -0.2, 0.2);
  for (int64_t i = 0; i < 900; ++i) g.data<float>()[i] *= 0.01F;  // rows that need no clipping
  const Tensor before = box.copy(g);
  AdaptiveClip agc(arena, layout, {.agc = kLimit});
  EXPECT_TRUE(agc.apply(box.ctx(), g, w));

  int clipped = 0, kept = 0;
  for (const ParamSpec& spec : layout.specs()) {
    const auto weights = rows(w, spec), was = rows(before, spec), is = rows(g, spec);
    for (size_t r = 0; r < is.size(); ++r) {
      const double limit = kLimit * std::max(norm(weights[r]), 1e-3);
      const bool clip = spec.role != Role::Head && norm(was[r]) > limit;
      (clip ? clipped : kept) += 1;
      if (clip)
        EXPECT_NEAR(norm(is[r]), limit, 1e-6 * limit) << spec.name << " row " << r;
      else
        EXPECT_TRUE(same_bits(is[r], was[r])) << spec.name << " row " << r;
    }
  }
  EXPECT_GT(clipped, 20);
  EXPECT_GT(kept, 20);
}

TEST_P(Agc, SmallWeightsCountAsAThousandth) {
  const Tensor w = box.filled({layout.size()}, 0), g = box.filled({layout.size()}, 1);
  AdaptiveClip agc(arena, layout, {.agc = kLimit});
  agc.apply(box.ctx(), g, w);
  for (const ParamSpec& spec : layout.specs()) {
    if (spec.role == Role::Head) continue;
    for (const Tensor& row : rows(g, spec)) EXPECT_NEAR(norm(row), kLimit * 1e-3, 1e-9);
  }
}

TEST_P(Agc, PaddingAndHeadAreLeftAlone) {
  const Tensor w = box.random({layout.size()}), g = box.random({layout.size()}), was = box.copy(g);
  AdaptiveClip agc(arena, layout, {.agc = 1e-6F});
  agc.apply(box.ctx(), g, w);
  std::vector<bool> clipped(static_cast<size_t>(layout.size()));
  for (const ParamSpec& spec : layout.specs())
    if (spec.role != Role::Head) std::fill_n(clipped.begin() + spec.offset, spec.live(), true);
  for (int64_t i = 0; i < layout.size(); ++i)
    EXPECT_EQ(at(g, i) != at(was, i), clipped[static_cast<size_t>(i)]) << i;
}

TEST_P(Agc, OffDoesNothingAndTakesNothing) {
  const Tensor w = box.random({layout.size()}), g = box.random({layout.size()}), was = box.copy(g);
  AdaptiveClip agc(arena, layout, {});
  EXPECT_FALSE(agc.apply(box.ctx(), g, w));
  EXPECT_TRUE(same_bits(g, was));
  EXPECT_EQ(arena.current().total(), 0);
  EXPECT_EQ(AdaptiveClip::bytes(layout, {}), 0);
}

}  // namespace
}  // namespace ladder::test
