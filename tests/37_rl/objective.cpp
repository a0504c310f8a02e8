// Advantages, ratios, clips and preferences, by hand; and weights against differences of the loss.
#include "chapters/37_rl/objective.h"

#include <bit>

#include <gtest/gtest.h>

namespace ladder::test {
namespace {

TEST(Advantages, AreOfAGroup) {
  const std::vector<int64_t> rewards = {1, 0, 0, 1};
  EXPECT_EQ(advantages(rewards, Advantage::Mean), (std::vector<double>{0.5, -0.5, -0.5, 0.5}));
  const double deviation =
      std::sqrt(1.0 / 3);  // of four numbers, each 0.5 away: 4 * 0.25 / (4 - 1)
  for (const double one : advantages(rewards, Advantage::Std))
    EXPECT_EQ(std::abs(one), 0.5 / (deviation + 1e-4));
}

// Whole numbers have an exact mean. Of seven rewards of 0.1 it would be another number, 1.4e-17
// away; divided by a deviation of 1.5e-17 and 1e-4 the advantage would not be zero.
// Divided by 49, 49 is 1; multiplied with 1.0 / 49 it is not. Smaller groups do not show it.
TEST(Advantages, AreExactlyZeroWhereRewardsAreEqual) {
  for (const int64_t n : {2, 3, 7, 8, 31, 49, 98})
    for (const int64_t reward : {0, 1, 3, 1000003}) {
      const std::vector<int64_t> rewards(static_cast<size_t>(n), reward);
      for (const Advantage kind : {Advantage::Std, Advantage::Mean})
        for (const double one : advantages(rewards, kind)) EXPECT_EQ(one, 0);
    }
  double sum = 0;
  for (int i = 0; i < 7; ++i) sum += 0.1;
  EXPECT_NE(0.1 - sum / 7, 0);
}

TEST(Grpo, OnPolicyTheRatioIsOneAndTheGradientIsNot) {
  const TokenTerm term = grpo_token({}, -1.5, -0.7F, -0.7F, 0);
  EXPECT_EQ(term.ratio, 1);
  EXPECT_EQ(term.kl, 0);
  EXPECT_EQ(term.weight, -1.5);
  EXPECT_EQ(term.loss, 1.5);
  EXPECT_FALSE(term.clipped);
}

// A token is clipped if its ratio has gone where its advantage sends it, and only then.
TEST(Grpo, Clips) {
  const auto clipped = [](double ratio, double advantage) {
    return grpo_token({}, advantage, std::log(ratio), 0, 0).clipped;
  };
  EXPECT_TRUE(clipped(1.29, 1));
  EXPECT_FALSE(clipped(1.27, 1));
  EXPECT_FALSE(clipped(0.5, 1));
  EXPECT_TRUE(clipped(0.79, -1));
  EXPECT_FALSE(clipped(0.81, -1));
  EXPECT_FALSE(clipped(2, -1));
  EXPECT_EQ(grpo_token({}, 1, std::log(1.5), 0, 0).loss, -1.28);
}

/// The derivative of f at x.
template <class F>
double slope(F&& f, double x) {
  const double h = 1e-6;
  return (f(x + h) - f(x - h)) / (2 * h);
}

TEST(Grpo, TheWeightIsMinusTheGradient) {
  for (const double kl : {0.0, 0.3})
    for (const double advantage : {-1.2, 0.0, 0.8})
      for (const double now : {-1.4, -1.05, -1.0, -0.9, -0.4}) {
        Objective o;
        o.kl = kl;
        const auto loss = [&](double x) { return grpo_token(o, advantage, x, -1, -1.3).loss; };
        EXPECT_NEAR(grpo_token(o, advantage, now, -1, -1.3).weight, -slope(loss, now), 1e-8);
      }
}

TEST(Dpo, TheFirstLossIsLogTwoToTheLastBit) {
  for (const RlLoss kind : {RlLoss::Dpo, RlLoss::DpoNorm}) {
    Objective o;
    o.loss = kind;
    const PairTerm pair = dpo_pair(o, {-3.7, -3.7, 5}, {-9.1, -9.1, 2});
    EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(pair.loss)), 0x3f317218U);
    EXPECT_NE(pair.chosen, 0);
    EXPECT_NE(pair.rejected, 0);
  }
}

TEST(Dpo, TheWeightIsMinusTheGradient) {
  for (const RlLoss kind : {RlLoss::Dpo, RlLoss::DpoNorm, RlLoss::Ipo})
    for (const double now : {-40.0, -4.0, -3.0, -1.0, 30.0}) {
      Objective o;
      o.loss = kind;
      o.beta = 0.4;
      const AnswerSums other{-5, -4, 3};
      const auto chosen = [&](double x) { return dpo_pair(o, {x, -3, 2}, other).loss; };
      const auto rejected = [&](double x) { return dpo_pair(o, other, {x, -3, 2}).loss; };
      EXPECT_NEAR(dpo_pair(o, {now, -3, 2}, other).chosen, -slope(chosen, now), 1e-7);
      EXPECT_NEAR(dpo_pair(o, other, {now, -3, 2}).rejected, -slope(rejected, now), 1e-7);
    }
}

}  // namespace
}  // namespace ladder::test
