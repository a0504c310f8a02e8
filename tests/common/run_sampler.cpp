// Sampler: the window of tokens and the choice of the next one, and on what these depend.

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "common/run/sampler.h"
#include "common/tokens/tokenizer.h"
#include "kernels/arena.h"

namespace ladder {
namespace {

constexpr int64_t T = 4, V = 8, Vp = 16;

using Row = std::vector<float>;  // V logits

SampleOptions options(int64_t count, double temperature, int64_t top_k, uint64_t seed = 1) {
  return {.count = count,
          .temperature = temperature,
          .top_k = top_k,
          .seed = seed,
          .seq_len = T,
          .vocab = V};
}

/// Generates with a model that gives the same logits for the last token of every window. All other
/// logits, those of other positions and of padding, would win if they were looked at.
std::string generate(const SampleOptions& o, const Row& row) {
  Arena arena;
  const Tensor tokens = arena.alloc(Mem::Activation, "tokens", Dtype::I32, {1, T});
  const Tensor logits = arena.alloc(Mem::Activation, "logits", Dtype::F32, {1, T, Vp});
  Sampler sampler(o);
  for (int64_t n = 1; sampler.next(tokens); ++n) {
    std::fill_n(logits.data<float>(), logits.size(), 1e6f);
    std::copy(row.begin(), row.end(), logits.data<float>() + (std::min(n, T) - 1) * Vp);
    sampler.choose(Ctx{}, logits);
  }
  return sampler.text();
}

std::vector<int> counts(const std::string& text) {
  std::vector<int> count(V);
  for (char c : text) ++count.at(static_cast<size_t>(c));
  return count;
}

TEST(Sampler, TokensOfATokenizerAreText) {
  SampleOptions o = options(3, 0, 0);
  o.bytes = false;
  EXPECT_EQ(generate(o, {0, 9, 0, 0, 0, 0, 0, 0}), "1 1 1");
  auto tokenizer = std::make_shared<Tokenizer>();
  tokenizer->tokens = {"a", "the ", "", "b", "", "", "", "<|endoftext|>"};
  tokenizer->end_of_text = 7;
  o.tokenizer = tokenizer;
  EXPECT_EQ(generate(o, {0, 9, 0, 0, 0, 0, 0, 0}), "the the the ");
  EXPECT_EQ(generate(o, {0, 0, 9, 0, 0, 0, 0, 0}), "") << "an id that is no token";
}

TEST(Sampler, WindowStartsAfterANewlineAndSlides) {
  Arena arena;
  const Tensor tokens = arena.alloc(Mem::Activation, "tokens", Dtype::I32, {1, T});
  const Tensor logits = arena.zeros(Mem::Activation, "logits", Dtype::F32, {1, T, Vp});
  Sampler sampler(options(5, 0, 0));
  std::vector<std::vector<int32_t>> windows;
  for (int32_t token = 1; sampler.next(tokens); ++token) {
    const auto* at = tokens.data<int32_t>();
    windows.emplace_back(at, at + T);
    std::fill_n(logits.data<float>(), logits.size(), 0.0f);
    for (int64_t t = 0; t < T; ++t) logits.data<float>()[t * Vp + token] = 1;
    sampler.choose(Ctx{}, logits);
  }
  const std::vector<std::vector<int32_t>> expected = {
      {'\n', 0, 0, 0}, {'\n', 1, 0, 0}, {'\n', 1, 2, 0}, {'\n', 1, 2, 3}, {1, 2, 3, 4}};
  EXPECT_EQ(windows, expected);
  EXPECT_EQ(sampler.text(), "\1\2\3\4\5");
}

TEST(Sampler, GreedyTakesTheLargest) {
  EXPECT_EQ(generate(options(3, 0, 0), {0, 1, 2, 9, 4, 5, 6, 7}), "\3\3\3");
}

TEST(Sampler, EqualLogitsGoToTheSmallerToken) {
  const Row row = {0, 1, 5, 5, 0, 5, 0, 0};
  EXPECT_EQ(generate(options(2, 0, 0), row), "\2\2");
  const auto count = counts(generate(options(500, 1, 2), row));
  EXPECT_GT(count[2], 0);
  EXPECT_GT(count[3], 0);
  EXPECT_EQ(count[2] + count[3], 500);
}

TEST(Sampler, TopOneIsGreedy) {
  const Row row = {0.5f, 0.25f, 0.75f, 0, 0.125f, 0.625f, 0, 0};
  EXPECT_EQ(generate(options(50, 1, 1), row), generate(options(50, 0, 0), row));
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  constexpr int kCount = 20000;
  const Row row = {0, 1, 2, -1, 0.5f, -2, 1.5f, 0};
  const double temperature = 0.7;
  const auto count = counts(generate(options(kCount, temperature, 0), row));
  double sum = 0, chi2 = 0;
  for (float x : row) sum += std::exp(x / temperature);
  for (size_t v = 0; v < row.size(); ++v) {
    const double expected = kCount * std::exp(row[v] / temperature) / sum;
    chi2 += (count[v] - expected) * (count[v] - expected) / expected;
  }
  EXPECT_LT(chi2, 24.3);  // 7 degrees of freedom: exceeded once in a thousand seeds
}

TEST(Sampler, SameSeedSameText) {
  const Row row = {0, 1, 2, 3, 2, 1, 0, 1};
  EXPECT_EQ(generate(options(64, 1, 0, 7), row), generate(options(64, 1, 0, 7), row));
  EXPECT_NE(generate(options(64, 1, 0, 7), row), generate(options(64, 1, 0, 8), row));
  const std::string longer = generate(options(64, 1, 0, 7), row);
  EXPECT_EQ(generate(options(20, 1, 0, 7), row), longer.substr(0, 20));
}

TEST(Sampler, TokensThatAreNoBytesAreNumbersAfterTheLastOfThem) {
  SampleOptions o = options(3, 0, 0);
  o.bytes = false;
  EXPECT_EQ(generate(o, {0, 1, 2, 3, 2, 1, 0, 1}), "3 3 3");
  Arena arena;
  const Tensor tokens = arena.alloc(Mem::Activation, "tokens", Dtype::I32, {1, T});
  ASSERT_TRUE(Sampler(o).next(tokens));
  EXPECT_EQ(tokens.data<int32_t>()[0], V - 1);
}

TEST(Sampler, NanIsTheSmallestLogit) {
  const Row row = {NAN, -3, NAN, -2, -9, -9, -9, NAN};
  EXPECT_EQ(generate(options(2, 0, 0), row), "\3\3");
  const auto count = counts(generate(options(300, 1, 0), row));
  EXPECT_EQ(count[0] + count[2] + count[7], 0);
  EXPECT_EQ(generate(options(2, 1, 0), Row(V, NAN)), std::string(2, '\0'));
}

}  // namespace
}  // namespace ladder
