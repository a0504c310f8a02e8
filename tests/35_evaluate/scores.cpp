// Verdicts and standard errors, on numbers that were worked out by hand.
#include "chapters/35_evaluate/scores.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/35_evaluate/tasks.h"

namespace ladder {
namespace {

Outcome of(const std::vector<double>& sums) {
  Outcome outcome;
  for (const double sum : sums) outcome.of.push_back({.sum = sum, .greedy = true, .tokens = 1});
  return outcome;
}

TEST(Scores, ByTheSumByCharactersAndByBytes) {
  // Four characters and four bytes; two characters and six bytes; eight and eight.
  const Task task{.choices = {"four", "\xe4\xba\x8c\xe5\x8d\x81", "eighteen"}};
  EXPECT_EQ(characters(task.choices[1]), 2);
  const auto best = [&](const std::vector<double>& sums) {
    std::vector<int64_t> golds;
    for (const char* name : {"acc", "acc_norm", "acc_bytes"})
      for (int64_t gold = 0; gold < 3; ++gold) {
        Task one = task;
        one.gold = gold;
        if (scores_of(one, of(sums)).at(name).first == 1) golds.push_back(gold);
      }
    return golds;
  };
  EXPECT_EQ(best({-4, -5, -6}), std::vector<int64_t>({0, 2, 2}));
  EXPECT_EQ(best({-5, -3, -8}), std::vector<int64_t>({1, 2, 1}));
  EXPECT_EQ(best({-4, -4, -9}), std::vector<int64_t>({0, 0, 1})) << "the first of equals";
}

TEST(Scores, AMatchIsGreedyInAllTokens) {
  LogLikelihood all;
  all += {.sum = -1, .greedy = true, .tokens = 1};
  EXPECT_TRUE(all.greedy);
  all += {.sum = -2, .greedy = false, .tokens = 1};
  all += {.sum = -3, .greedy = true, .tokens = 1};
  EXPECT_FALSE(all.greedy);
  EXPECT_EQ(all.sum, -6);
  EXPECT_EQ(all.tokens, 3);
}

/// Bits per byte of two texts: the sums are divided, not each text by itself.
TEST(Scores, SumsAreDivided) {
  const std::vector<Task> tasks{{.kind = TaskKind::Rolling, .choices = {"a"}},
                                {.kind = TaskKind::Rolling, .choices = {"nine more"}}};
  const FileScores file =
      sum_up(tasks, {of({-8 * std::log(2.0)}), of({-9 * std::log(2.0)})}).front();
  const Ratio& bits = file.at("bits_per_byte");
  EXPECT_DOUBLE_EQ(bits.value(), 17.0 / 10);
  EXPECT_NE(bits.value(), (8.0 + 1.0) / 2) << "the mean of ratios";
  // What 1.7 bits for each byte leave: 8 - 1.7 and 9 - 15.3.
  EXPECT_NEAR(bits.error(), std::sqrt(2 * (6.3 * 6.3 + 6.3 * 6.3)) / 10, 1e-12);
}

TEST(Scores, TheErrorOfAShareIsThatOfAMean) {
  Ratio share;
  for (const double right : {1.0, 0.0, 0.0, 1.0, 1.0}) share.add({right, 1});
  EXPECT_DOUBLE_EQ(share.value(), 0.6);
  EXPECT_DOUBLE_EQ(share.error(), std::sqrt((3 * 0.16 + 2 * 0.36) / 4 / 5));
}

TEST(Tasks, ExamplesAreOtherQuestions) {
  std::vector<Task> tasks;
  for (const char* context : {"1 + 1 =", "1 + 2 =", "1 + 1 =", "2 + 2 ="})
    tasks.push_back({.context = context, .choices = {context[4] == '1' ? "2" : "3", "9"}});
  std::vector<Task> with = tasks;
  add_shots(with, 1, "t");
  EXPECT_EQ(with[0].context, "1 + 2 = 3\n\n1 + 1 =") << "not its own, nor a copy of it";
  EXPECT_EQ(with[1].context, "1 + 1 = 2\n\n1 + 2 =");
  EXPECT_EQ(with[3].context, "1 + 1 = 2\n\n2 + 2 =");
  EXPECT_THROW(add_shots(tasks, 3, "t"), UserError);
}

}  // namespace
}  // namespace ladder
