// The text of a plan, and the formula of what tensor ranks send, by stage.
#include <gtest/gtest.h>

#include "chapters/11_tensor_parallel/traffic.h"
#include "chapters/13_3d_parallel/plan.h"

namespace ladder::test {
namespace {

TEST(PlanText, EveryRankOfASmallMesh) {
  EXPECT_EQ(grid_text({.tp = 2, .dp = 2, .pp = 3}),
            "\n  ranks                stage 0     stage 1     stage 2"
            "\n  share 0                  0-1         4-5         8-9"
            "\n  share 1                  2-3         6-7       10-11");
  EXPECT_EQ(grid_text({.tp = 1, .dp = 1, .pp = 2}),
            "\n  ranks                stage 0     stage 1"
            "\n  share 0                    0           1");
}

TEST(PlanText, OfALargeMeshTheFirstAndTheLast) {
  const std::string text = grid_text({.tp = 8, .dp = 10, .pp = 16});
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
        const StagePlan stage(options, gpt, s, pp);
        sum += tp_traffic_of_stage(stage, acts, Recompute("none", stage.part.layers, true), B);
      }
      const int64_t once_more =
          sequence_ranks == 1 ? 0 : 2 * gpt.layers * 4 * B * gpt.seq_len * gpt.channels;
      EXPECT_EQ(sum,
                tp_traffic(gpt, acts, Recompute("none", gpt.layers), B) + (tp - 1) * once_more / tp)
          << pp;
    }
}

}  // namespace
}  // namespace ladder::test
