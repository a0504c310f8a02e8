// What recomputation is for: gradients of a small model whose blocks share the memory of their
// activations, with recomputation and without it. Without it every plan that shares memory must
// give wrong gradients. Otherwise the tests of whole programs would prove nothing.
#include "chapters/06_checkpointing/recompute.h"
#include "common/model/layout.h"
#include "tests/common/blocks.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

constexpr int64_t kB = 2;

class SharedActivations : public ::testing::TestWithParam<const Kernels& (*)()> {
 protected:
  /// Gradients of all parameters with the activations of `plan`. Backward of block l begins with
  /// again(l).
  template <class Again>
  Tensor gradients(const ActivationPlan& plan, Again&& again) {
    const Activations a = alloc_activations(arena, config, kB, plan);
    const ActGrads d = alloc_act_grads(arena, config, kB);
    const Tensor grads = box.zeros(Dtype::F32, {layout.size()});
    const GptTensors dw = layout.view(grads);
    embed_forward(box.ctx(), a.embed, tokens, w.embed);
    for (int64_t l = 0; l < config.layers; ++l) forward_block(a, l);
    norm_forward(box.ctx(), a.norm, a.stat, a.stream(config.layers), w.norm);
    head_forward(box.ctx(), a.logits, a.norm, w.head_w);
    head_loss_and_gradient(box.ctx(), losses, a.logits, targets, config.vocab, 1);
    head_backward_input(box.ctx(), d.branch, a.logits, w.head_w);
    norm_backward_input(box.ctx(), d.stream, d.branch, a.stream(config.layers), a.stat, w.norm);
    for (int64_t l = config.layers; l-- > 0;) {
      again(a, l);
      backward_block(box.ctx(), dw, w, a, d, l);
    }
    return grads;
  }

  void forward_block(const Activations& a, int64_t l) { test::forward_block(box.ctx(), w, a, l); }
  Tensor kept() {
    return gradients({}, [](const Activations&, int64_t) {});
  }
  Tensor not_recomputed(const ActivationPlan& plan) {
    return gradients(plan, [](const Activations&, int64_t) {});
  }
  /// As chapter 06 does.
  Tensor recomputed(const Recompute& recompute, const ActivationPlan& base = {}) {
    return gradients(recompute.plan(base), [&](const Activations& a, int64_t l) {
      const Range segment = recompute.segment_before(l);
      for (int64_t b = segment.begin; b < segment.end; ++b) forward_block(a, b);
      const auto i = static_cast<size_t>(l);
      recompute_parts(box.ctx(), recompute.parts_before(l), a.blocks[i], a.stream(l), w.blocks[i]);
    });
  }

  const GptConfig config{.name = "test",
                         .layers = 5,
                         .heads = 2,
                         .channels = 12,
                         .seq_len = 6,
                         .positions = 6,
                         .vocab = 11,
                         .padded_vocab = 13};
  const ParamLayout layout{config};
  Sandbox box{GetParam()()};
  Arena arena;
  const Tensor params = box.random(Dtype::F32, {layout.size()}, -0.3, 0.3);
  const GptTensors w = layout.view(params);
  const Tensor tokens = box.tokens({kB, config.seq_len}, config.vocab);
  const Tensor targets = box.tokens({kB, config.seq_len}, config.vocab);
  const Tensor losses = box.empty({kB});
};
INSTANTIATE_TEST_SUITE_P(Tables, SharedActivations, ::testing::Values(ref_kernels, cpu_kernels),
                         [](const auto& table) { return std::string(table.param().name); });

TEST_P(SharedActivations, RecomputedGradientsHaveTheSameBits) {
  const Tensor all = kept();
  for (const char* policy : {"none", "every:1", "every:2", "every:3", "every:4", "every:5", "sqrt",
                             "full", "selective", "selective:attention", "selective:mlp"})
    EXPECT_TRUE(same_bits(recomputed(Recompute(policy, config.layers)), all)) << policy;
}

TEST_P(SharedActivations, NegativeControlWithoutRecomputationTheyDiffer) {
  const Tensor all = kept();
  ASSERT_TRUE(same_bits(not_recomputed({.sets = config.layers}), all));
  for (int64_t sets = 1; sets < config.layers; ++sets)
    EXPECT_FALSE(same_bits(not_recomputed({.sets = sets}), all)) << sets;
  EXPECT_FALSE(same_bits(not_recomputed({.own_norm = false}), all));
  EXPECT_FALSE(same_bits(not_recomputed({.own_att = false}), all));
  EXPECT_FALSE(same_bits(not_recomputed({.own_act = false}), all));
}

TEST_P(SharedActivations, NegativeControlInputsThatAreNotBroughtBackDiffer) {
  // Chapter 18 without its file: a segment is computed again from what a later one left.
  const ActivationPlan two_inputs{.own_input = false, .own_output = false};
  for (const char* policy : {"full", "every:2"})
    EXPECT_FALSE(same_bits(recomputed(Recompute(policy, config.layers), two_inputs), kept()))
        << policy;
}

TEST_P(SharedActivations, NegativeControlOneSegmentTooFewDiffers) {
  const Recompute full("full", config.layers);
  const Tensor without_2 = gradients(full.plan({}), [&](const Activations& a, int64_t l) {
    if (l != 2 && full.segment_before(l).size() > 0) forward_block(a, l);
  });
  EXPECT_FALSE(same_bits(without_2, kept()));
}

}  // namespace
}  // namespace ladder::test
