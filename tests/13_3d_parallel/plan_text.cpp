// The text of a plan, and the formula of what tensor ranks send, by stage.
#include "chapters/13_3d_parallel/proof/plan_text.h"

#include <gtest/gtest.h>

#include "chapters/11_tensor_parallel/traffic.h"
#include "chapters/13_3d_parallel/proof/plan.h"

namespace ladder::test {
namespace {

TEST(PlanText, EveryRankOfASmallMesh) {
  EXPECT_EQ(grid_text({{Axis::Tensor, 2}, {Axis::Data, 2}, {Axis::Pipeline, 3}}),
            "\n  ranks                stage 0     stage 1     stage 2"
            "\n  share 0                  0-1         4-5         8-9"
            "\n  share 1                  2-3         6-7       10-11");
  EXPECT_EQ(grid_text({{Axis::Pipeline, 2}}),
            "\n  ranks                stage 0     stage 1"
            "\n  share 0                    0           1");
}

TEST(PlanText, OfALargeMeshTheFirstAndTheLast) {
  const std::string text = grid_text({{Axis::Tensor, 8}, {Axis::Data, 10}, {Axis::Pipeline, 16}});
  for (const std::string there : {"stage 5", "stage 15", "share 5", "share 9", "1272-1279", "..."})
    EXPECT_NE(text.find(there), std::string::npos) << there;
  for (const std::string left_out : {"stage 6", "stage 14", "share 6", "share 8"})
    EXPECT_EQ(text.find(left_out), std::string::npos) << left_out;
}

TEST(PlanText, StagesThatAreAlikeAreOneRow) {
  const std::vector<Cells> stages = {{"2", "a"}, {"1", "a"}, {"1", "a"}, {"1", "b"}, {"1", "b"}};
  EXPECT_EQ(stage_table("what", {"x", "y"}, stages),
            "\n  what                       x           y"
            "\n  stage 0                    2           a"
            "\n  stages 1 to 2              1           a"
            "\n  stages 3 to 4              1           b");
}

TEST(PlanText, Bytes) {
  EXPECT_EQ(bytes_text(0), "0.00 MiB");
  EXPECT_EQ(bytes_text(3 << 19), "1.50 MiB");
  EXPECT_EQ(bytes_text(int64_t{5} << 29), "2.50 GiB");
}

// What all stages of a pipeline send to tensor ranks is what one rank does in chapter 11. Under
// sequence parallelism weight gradients may come later than those of inputs, so both gather the
// gradient of the two products of a block.
TEST(PlanTraffic, StagesTogetherSendWhatChapter11Does) {
  const GptConfig gpt = preset("nano");
  const int64_t B = 8, tp = 4;
  for (const int64_t sequence_ranks : {int64_t{1}, tp})
    for (const int64_t pp : {1, 2, 4}) {
      ActivationPlan acts;
      acts.tp = tp;
      acts.sequence_ranks = sequence_ranks;
      PipelineOptions options;
      options.pp = static_cast<int>(pp);
      int64_t sum = 0;
      for (int64_t s = 0; s < pp; ++s) {
        const StageLayout stage(options, gpt, s, options.pipeline(gpt, pp, /*micros=*/1));
        sum += tp_traffic_of_stage(
            stage, acts, Recompute("none", stage.model_chunk.layers, /*at_once=*/false), B);
      }
      const int64_t once_more =
          sequence_ranks == 1 ? 0 : 2 * gpt.layers * 4 * B * gpt.seq_len * gpt.channels;
      EXPECT_EQ(sum,
                tp_traffic(gpt, acts, Recompute("none", gpt.layers), B) + (tp - 1) * once_more / tp)
          << pp;
    }
}

class PlanBubble : public ::testing::Test {
 protected:
  /// Eight stages of the model whose bubble arXiv 2401.10241 measured: 22 layers there, 24 here.
  StageLayout stage(const std::string& schedule) const {
    PipelineOptions options;
    options.kind = *named<PipelineKind>(schedule);
    GptConfig gpt = preset("gpt2-1558m");
    gpt.layers = 24;
    return {options, gpt, 0, options.pipeline(gpt, 8, /*micros=*/24)};
  }
};

// A token and block of C 1600 and T 1024: 24 C^2 for each of the three, and of attention 2 C (T+1)
// forward and 5 C (T+1) for gradients of inputs, with 2.5 and 3 (T+1) a head for the softmax.
TEST_F(PlanBubble, OfCountedOperations) {
  const double C = 1600, T1 = 1025, NH = 25;
  const StageTimes t = counted_times(stage("1f1b"), Recompute("none", 3, /*at_once=*/false));
  EXPECT_NEAR(t.forward / t.weight, 1 + T1 * (2 * C + 2.5 * NH) / (24 * C * C), 1e-12);
  EXPECT_NEAR(t.input / t.weight, 1 + T1 * (5 * C + 3 * NH) / (24 * C * C), 1e-12);
  EXPECT_EQ(t.weight, 3 * 24 * C * C * 1024);
  const std::string text = bubble_text(stage("zb-h1"), Recompute("none", 3, /*at_once=*/false));
  EXPECT_NE(text.find("1 : 1.08 : 0.95 (their operations are counted)"), std::string::npos) << text;
}

// 1f1b computes a stage again once, with B; zb-h1 for I and for W.
TEST_F(PlanBubble, CountsWhatIsComputedAgain) {
  const Recompute none("none", 3, /*at_once=*/false), full("full", 3, /*at_once=*/false);
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    const StageTimes kept = counted_times(stage(schedule), none),
                     again = counted_times(stage(schedule), full);
    EXPECT_EQ(again.forward, kept.forward);
    EXPECT_EQ(again.input, kept.input + kept.forward);
    EXPECT_EQ(again.weight, kept.weight + (schedule == "zb-h1" ? kept.forward : 0));
  }
}

}  // namespace
}  // namespace ladder::test
