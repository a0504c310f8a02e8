// Rollouts: what is learned of an answer, what a line of the file keeps, and what a checker gives.
#include "chapters/37_rl/rollout.h"

#include <gtest/gtest.h>

#include "chapters/37_rl/rl.h"
#include "kernels/arena.h"

namespace ladder::test {
namespace {

Scored answer(int64_t line, int64_t number, std::vector<int32_t> prompt,
              const std::vector<int32_t>& drawn) {
  Scored one;
  one.line = line;
  one.number = number;
  one.prompt = std::ssize(prompt);
  one.tokens = std::move(prompt);
  one.tokens.insert(one.tokens.end(), drawn.begin(), drawn.end());
  one.logprobs.assign(drawn.size(), -0.1F);
  return one;
}

// A token of the prompt is read and never learned: with it in the loss the count would be another.
TEST(Fill, LearnsTheAnswersAlone) {
  Arena arena;
  const int64_t T = 8;
  const PackOptions packing{.documents = true,
                            .end_of_text = {},
                            .unpacked = true,
                            .row_documents = 2,
                            .chunk_length = T};
  BundleBatch batch(arena, packing, 2, 1, T);
  const std::vector<Scored> answers = {
      answer(0, 0, {1, 2, 3}, {7, 9}), answer(0, 1, {1, 2, 3}, {8}),
      answer(1, 0, {4, 5}, {6, 6, 6, 9}), answer(1, 1, {4, 5}, {9})};
  fill(batch, answers, 2);
  const int32_t* read = batch.rows().tokens.data<int32_t>();
  const int32_t* learned = batch.rows().targets.data<int32_t>();
  const int32_t _ = kIgnore;
  EXPECT_EQ(std::vector<int32_t>(read, read + 8), (std::vector<int32_t>{1, 2, 3, 7, 0, 0, 0, 0}));
  EXPECT_EQ(std::vector<int32_t>(learned, learned + 16),
            (std::vector<int32_t>{_, _, 7, 9, _, _, _, _, _, _, 8, _, _, _, _, _}));
  EXPECT_EQ(std::vector<int32_t>(learned + 16, learned + 24),
            (std::vector<int32_t>{_, 6, 6, 6, 9, _, _, _}));
}

// Each token of the batch has the same share. A mean of means would give the tokens of the longer
// answer a third of it. Tokens of the prompt have no weight.
TEST(Weights, ATokensShareDoesNotDependOnItsAnswer) {
  Scored right = answer(0, 0, {1, 2}, {7}), wrong = answer(0, 1, {1, 2}, {4, 6, 9});
  right.reward = 1;
  const std::vector<float> losses(8, 0.1F);
  std::vector<float> weights(8, 9);
  const std::vector<AnswerRow> group = {{&right, losses.data(), weights.data()},
                                        {&wrong, losses.data(), weights.data() + 4}};
  Objective o;
  o.advantage = Advantage::Mean;
  std::array<float, 2> sums{};
  std::array<AnswerCounts, 2> counts;
  weigh_group(o, group, 0.25, sums.data(), counts.data());
  EXPECT_EQ(weights, (std::vector<float>{9, 0.125F, 9, 9, 9, -0.125F, -0.125F, -0.125F}));
  EXPECT_EQ(sums, (std::array{-0.5F, 1.5F}));  // -(A_0 n_0 + A_1 n_1), before it is divided
  for (const AnswerCounts& of : counts) {
    EXPECT_EQ(of.ratio, 1);
    EXPECT_EQ(of.kl, 0);
  }
}

TEST(Line, KeepsEveryBit) {
  const std::vector<RlTask> tasks = {{.prompt = {4, 5}, .answer = "x"}};
  Scored one = answer(0, 3, {4, 5}, {6, 7});
  one.logprobs = {-0.3333333F, -1e-38F};
  one.reward = 2;
  one.step = 5;
  one.end = End::Token;
  const Scored again = scored_from(parse_json(json_text(to_json(one))), tasks);
  EXPECT_EQ(again.logprobs, one.logprobs);
  EXPECT_EQ(again.tokens, one.tokens);
  EXPECT_EQ(std::tuple(again.prompt, again.number, again.reward, again.step, again.end),
            std::tuple(one.prompt, one.number, one.reward, one.step, one.end));
}

TEST(Rewards, AreWholeNumbers) {
  EXPECT_EQ(reward_of(Reward::Exact, "46", "46", true), 1);
  EXPECT_EQ(reward_of(Reward::Exact, "46 ", "46", true), 0);
  EXPECT_EQ(reward_of(Reward::Exact, "46", "46", false), 0);  // cut before its end
  EXPECT_EQ(reward_of(Reward::Prefix, "and the sea", "and the land", true), 2);
  EXPECT_EQ(reward_of(Reward::Prefix, "and the land", "and the land", true), 4);
  EXPECT_EQ(reward_of(Reward::Prefix, "and the land", "and the land", false), 0);
  EXPECT_EQ(reward_of(Reward::Prefix, "", "and", true), 0);
}

}  // namespace
}  // namespace ladder::test
