// The draw: its distribution, what it depends on, and its filters on numbers that were worked out
// by hand. tests/clients/test_generate.py compares the filters with those of transformers.
#include "chapters/31_generate/draw.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace ladder {
namespace {

using Row = std::vector<float>;
using Tokens = std::vector<int32_t>;

int32_t draw(const DrawOptions& options, Row logits, const DrawKey& key = {},
             const Tokens& text = {}) {
  return Draw(options)(logits, text, key);
}
Tokens kept(const DrawOptions& options, const Row& heated) {
  return Draw(options).filtered(heated);
}
/// Logits of these probabilities.
Row logits_of(const std::vector<double>& probabilities) {
  Row row;
  for (const double p : probabilities) row.push_back(static_cast<float>(std::log(p)));
  return row;
}

TEST(Draw, HasTheDistributionOfTheSoftmax) {
  const std::vector<double> p = {0.5, 0.25, 0.15, 0.07, 0.03};
  const int64_t count = 40000;
  std::vector<double> seen(p.size());
  for (int64_t i = 0; i < count; ++i)
    ++seen[static_cast<size_t>(draw({}, logits_of(p), {.position = i}))];
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * static_cast<double>(count);
    EXPECT_LT(std::abs(seen[i] - expected), 4 * std::sqrt(expected * (1 - p[i]))) << i;
  }
  // Heated by 2, the second is sqrt(1/2) as likely as the first.
  std::fill(seen.begin(), seen.end(), 0);
  for (int64_t i = 0; i < count; ++i)
    ++seen[static_cast<size_t>(draw({.temperature = 2}, logits_of(p), {.position = i}))];
  EXPECT_NEAR(seen[1] / seen[0], std::sqrt(0.5), 0.03);
}

TEST(Draw, DependsOnEachPartOfItsKey) {
  const Row even(1000, 0.0f);
  const DrawKey key{.line = 3, .answer = 1, .position = 7, .step = 2};
  const int32_t one = draw({}, even, key);
  EXPECT_EQ(one, draw({}, even, key));
  std::set<int32_t> all{one, draw({.seed = 2}, even, key)};
  for (int64_t DrawKey::*part :
       {&DrawKey::line, &DrawKey::answer, &DrawKey::position, &DrawKey::step}) {
    DrawKey other = key;
    ++(other.*part);
    all.insert(draw({}, even, other));
  }
  EXPECT_EQ(all.size(), 6u);
}

/// Every token is left out whose noise cannot win. With all of them the token is the same.
TEST(Draw, WhatIsLeftOutCouldNotWin) {
  const Random noise(1, "generate/0/0/0"), values(1, "values");
  for (int64_t position = 0; position < 200; ++position) {
    Row row;
    for (uint64_t i = 0; i < 300; ++i)
      row.push_back(static_cast<float>(4 * values.uniform(i, static_cast<uint64_t>(position))));
    int32_t best = -1;
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < row.size(); ++i) {
      const uint64_t word = noise.bits(static_cast<uint64_t>(position), i / 2)[i % 2];
      const double u = 1 - (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
      const double sum = row[i] - math::log(-math::log(u));
      if (sum > largest) {
        largest = sum;
        best = static_cast<int32_t>(i);
      }
    }
    EXPECT_EQ(draw({}, row, {.position = position}), best);
  }
}

TEST(Draw, TiesGoToTheLowerToken) {
  EXPECT_EQ(draw({.temperature = 0}, {1, 3, 3, 2}), 1);
  EXPECT_EQ(kept({.top_k = 2}, {1, 3, 3, 3}), (Tokens{1, 2}));
  EXPECT_EQ(kept({.top_p = 0.5}, {0, 0, 0, 0}), (Tokens{0, 1}));
}

TEST(Draw, TopPTakesTheTokenThatCrosses) {
  const Row row = logits_of({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(kept({.top_p = 0.39}, row), (Tokens{1}));
  EXPECT_EQ(kept({.top_p = 0.41}, row), (Tokens{1, 3}));
  EXPECT_EQ(kept({.top_p = 0.71}, row), (Tokens{1, 2, 3}));
  EXPECT_EQ(kept({.top_p = 1}, row), (Tokens{0, 1, 2, 3}));
  // Of what top-k leaves, 0.4 of 0.7 is 0.57.
  EXPECT_EQ(kept({.top_k = 2, .top_p = 0.55}, row), (Tokens{1}));
  EXPECT_EQ(kept({.top_p = 1e-9}, row), (Tokens{1}));
}

TEST(Draw, MinPComparesWithTheMostLikely) {
  const Row row = logits_of({0.1, 0.4, 0.2, 0.3});
  EXPECT_EQ(kept({.min_p = 0.45}, row), (Tokens{1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 0.6}, row), (Tokens{1, 3}));
  EXPECT_EQ(kept({.min_p = 1}, row), (Tokens{1}));
}

/// The penalty comes before the temperature: it reads the sign of the logit, and each token counts
/// once, however often the text has it.
TEST(Draw, PenaltyOfTokensOfTheText) {
  Row row = {2, -2, 2, -2};
  Draw({.repetition_penalty = 2}).penalize(row, Tokens{0, 1, 0, 1});
  EXPECT_EQ(row, (Row{1, -4, 2, -2}));
  EXPECT_EQ(draw({.temperature = 0, .repetition_penalty = 1.5}, {2, 1.9f}, {}, {0}), 1);
}

/// The order of transformers: penalty and temperature, then filters. Each of the first three is
/// another set if a filter comes first.
TEST(Draw, PenaltyThenTemperatureThenFilters) {
  const auto drawn = [](const DrawOptions& options, const Row& row, const Tokens& text) {
    std::set<int32_t> all;
    for (int64_t i = 0; i < 200; ++i) all.insert(draw(options, row, {.position = i}, text));
    return all;
  };
  using Set = std::set<int32_t>;
  // The most likely token is not, once it is penalized: 1.33 and 1.9.
  EXPECT_EQ(drawn({.top_k = 1, .repetition_penalty = 1.5}, {2, 1.9f}, {0}), Set{1});
  // 0.6, 0.2, 0.2 become 0.46, 0.27, 0.27: one token reaches a half no more.
  EXPECT_EQ(drawn({.temperature = 2, .top_p = 0.5}, logits_of({0.6, 0.2, 0.2}), {}), (Set{0, 1}));
  // 0.2 is a third of 0.6, and its root more than a half.
  EXPECT_EQ(drawn({.temperature = 2, .min_p = 0.5}, logits_of({0.6, 0.2, 0.2}), {}),
            (Set{0, 1, 2}));
  // Of equals top-k takes the lower, and top-p takes the lower of those.
  EXPECT_EQ(drawn({.top_k = 3, .top_p = 0.6}, {0, 0, 0, 0, 0}, {}), (Set{0, 1}));
}

/// -infinity is a token that is left out. Other numbers that are not finite are told, with their
/// place, whatever the temperature and the filters.
TEST(Draw, NaNIsTold) {
  const float nan = std::nanf(""), most = std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(draw({}, {-most, 0, -most}, {.position = i}), 1);
  const DrawKey key{.line = 1, .answer = 0, .position = 16, .step = 5};
  const std::string at = "line 2, answer 1, token 17 (step 5): ";
  for (const DrawOptions& options :
       {DrawOptions{}, {.temperature = 0}, {.top_k = 1}, {.repetition_penalty = 2}})
    for (const auto& [row, why] :
         {std::pair<Row, std::string>{{0, nan, 3}, "the model's logit of token 1 is NaN"},
          {{0, 1, most}, "the model's logit of token 2 is infinite"},
          {{-most, -most}, "all logits of the model are -infinity"}}) {
      try {
        draw(options, row, key);
        ADD_FAILURE() << why;
      } catch (const NotDone& e) {
        EXPECT_EQ(e.what(), at + why);
      }
    }
}

}  // namespace
}  // namespace ladder
