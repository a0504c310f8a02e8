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
    EXPECT_EQ(of.distance, 0);
  }
}

TEST(Line, KeepsEveryBit) {
  const std::vector<RlTask> tasks = {{.prompt = {4, 5}, .answer = "x"}};
  Scored one = answer(0, 3, {4, 5}, {6, 7});
  one.logprobs = {-0.3333333F, -1e-38F};
  one.reward = 2;
  one.step = 5;
  one.end = End::Token;
  const Scored again = scored_from(parse_json(json_text(to_json(one))), {tasks, 16, 8});
  EXPECT_EQ(again.logprobs, one.logprobs);
  EXPECT_EQ(again.tokens, one.tokens);
  EXPECT_EQ(std::tuple(again.prompt, again.number, again.reward, again.step, again.end),
            std::tuple(one.prompt, one.number, one.reward, one.step, one.end));
}

// A number outside of memory, a prompt's mark, an answer longer than a row: none is trained on.
TEST(Line, RefusesWhatNoRolloutHas) {
  const std::vector<RlTask> tasks = {{.prompt = {4, 5}, .answer = "x"}};
  const auto refused = [&](const char* name, const nlohmann::json& value) {
    nlohmann::json line = to_json(answer(0, 0, {4, 5}, {6, 7}));
    line[name] = value;
    EXPECT_THROW(scored_from(line, {tasks, 16, 8}), UserError) << name << value;
  };
  for (const int64_t token : {-5, 16}) refused("tokens", {6, token});
  for (const char* name : {"rollout", "line", "answer", "reward"})
    for (const double value : {-1.0, 1e20}) refused(name, value);
  refused("line", 1);
  refused("logprobs", {-0.1, 0.5});
  refused("logprobs", {-0.1});
  refused("end", "no");
  nlohmann::json line = to_json(answer(0, 0, {4, 5}, {6, 7}));
  EXPECT_NO_THROW(scored_from(line, {tasks, 16, 4}));
  EXPECT_THROW(scored_from(line, {tasks, 16, 3}), UserError);
}

TEST(Rollouts, HaveEachAnswerOnce) {
  std::vector<Scored> twice = {answer(0, 1, {4}, {6}), answer(0, 1, {4}, {7})};
  EXPECT_THROW(sort_answers(twice, {0}, 2), UserError);
}

// NaN is larger than nothing, and std::max passes over it.
TEST(Weights, ARatioThatIsNaNIsTold) {
  for (const int bad : {0, 1}) {
    Scored one = answer(0, 0, {1}, {2, 3}), other = answer(0, 1, {1}, {4});
    one.logprobs[static_cast<size_t>(bad)] = NAN;
    const std::vector<float> losses(4, 0.1F);
    std::vector<float> weights(4);
    const std::vector<AnswerRow> group = {{&one, losses.data(), weights.data()},
                                          {&other, losses.data(), weights.data() + 2}};
    std::array<float, 2> sums{};
    std::array<AnswerCounts, 2> counts;
    weigh_group({}, group, 1, sums.data(), counts.data());
    EXPECT_TRUE(std::isnan(counts[0].ratio)) << bad;
  }
}

TEST(Rewards, AreWholeNumbers) {
  EXPECT_EQ(reward_of("46", "46", true), 1);
  EXPECT_EQ(reward_of("46 ", "46", true), 0);
  EXPECT_EQ(reward_of("46", "46", false), 0);  // cut before its end
}

}  // namespace
}  // namespace ladder::test
