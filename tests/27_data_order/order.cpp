// The order of documents in an epoch, and the shares of sources.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "chapters/27_data_order/dealing.h"
#include "chapters/27_data_order/permutation.h"
#include "tests/common/run_files.h"

namespace ladder {
namespace {

std::vector<int64_t> order(int64_t n, int64_t epoch = 0, int64_t source = 0, uint64_t seed = 1) {
  const Permutation permutation(seed, source, epoch, n);
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(permutation.at(i));
  return all;
}

TEST(Permutation, HasEachDocumentOnce) {
  for (const int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4096, 4097, 100'000}) {
    std::vector<bool> seen(static_cast<size_t>(n));
    for (const int64_t document : order(n)) {
      ASSERT_TRUE(document >= 0 && document < n) << n;
      EXPECT_FALSE(seen[static_cast<size_t>(document)]) << n << " has " << document << " twice";
      seen[static_cast<size_t>(document)] = true;
    }
  }
}

TEST(Permutation, IsAnotherInEachEpochSourceAndSeed) {
  const std::set<std::vector<int64_t>> all = {order(50), order(50, 1), order(50, 2),
                                              order(50, 0, 1), order(50, 0, 0, 2)};
  EXPECT_EQ(all.size(), 5u);
  EXPECT_EQ(order(50), order(50));
}

// Of 4,000 epochs each document has each place about equally often, and so has each pair of
// neighbors: chi squared stays within six standard deviations of its mean. Rounds too few fail.
TEST(Permutation, FavorsNoPlaceAndNoNeighbor) {
  constexpr int64_t kEpochs = 4000;
  for (const int64_t n : {5, 12, 16, 30}) {
    const auto size = static_cast<size_t>(n);
    std::vector<double> places(size * size), neighbors(size * size);
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const std::vector<int64_t> all = order(n, epoch);
      for (size_t i = 0; i < size; ++i) {
        ++places[i * size + static_cast<size_t>(all[i])];
        if (i > 0)
          ++neighbors[static_cast<size_t>(all[i - 1]) * size + static_cast<size_t>(all[i])];
      }
    }
    const auto square = [](const std::vector<double>& counts, double mean, bool diagonal) {
      double sum = 0;
      const auto side = static_cast<size_t>(std::sqrt(static_cast<double>(counts.size())));
      for (size_t i = 0; i < counts.size(); ++i)
        if (diagonal || i / side != i % side) sum += (counts[i] - mean) * (counts[i] - mean) / mean;
      return sum;
    };
    const auto N = static_cast<double>(n);
    const double free = (N - 1) * (N - 1), pairs = N * (N - 1);
    EXPECT_LT(square(places, kEpochs / N, true), free + 6 * std::sqrt(2 * free)) << n;
    EXPECT_LT(square(neighbors, kEpochs / N, false), pairs + 6 * std::sqrt(2 * pairs)) << n;
  }
}

/// The largest |c W - t w| of any source and any t up to three rounds. Below W: less than one
/// document off. `next` chooses.
template <class Next>
int64_t largest_error(const std::vector<int64_t>& weights, Next&& next) {
  const int64_t W = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<int64_t> counts(weights.size());
  int64_t most = 0;
  for (int64_t t = 1; t <= 3 * W; ++t) {
    ++counts[next(weights, counts)];
    for (size_t s = 0; s < weights.size(); ++s)
      most = std::max(most, std::abs(counts[s] * W - t * weights[s]));
  }
  return most;
}

size_t by_largest_error(const std::vector<int64_t>& weights, const std::vector<int64_t>& counts) {
  const int64_t W = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  const int64_t t = 1 + std::accumulate(counts.begin(), counts.end(), int64_t{0});
  size_t best = 0;
  for (size_t s = 1; s < weights.size(); ++s)
    if (t * weights[s] - counts[s] * W > t * weights[best] - counts[best] * W) best = s;
  return best;
}

/// Calls f with every list of `n` weights from 1 to `most`.
template <class F>
void for_weights(size_t n, int64_t most, F&& f) {
  std::vector<int64_t> weights(n, 1);
  while (true) {
    f(weights);
    size_t i = 0;
    while (i < n && weights[i] == most) weights[i++] = 1;
    if (i == n) return;
    ++weights[i];
  }
}

TEST(Dealing, EveryBeginningIsWithinOneDocumentOfTheWeights) {
  const auto holds = [](const std::vector<int64_t>& weights) {
    const int64_t W = std::accumulate(weights.begin(), weights.end(), int64_t{0});
    EXPECT_LT(largest_error(weights, next_source), W) << fmt::format("{}", fmt::join(weights, ","));
  };
  for (size_t n = 1; n <= 4; ++n) for_weights(n, n < 4 ? 9 : 5, holds);
  for (const auto& weights : std::vector<std::vector<int64_t>>{
           {1, 1, 1, 11, 11}, {1, 1, 1, 1, 11, 11}, {997, 1, 2}, {1, 500, 3, 77, 500, 2}})
    holds(weights);
}

TEST(Dealing, NegativeControlLargestErrorFirst) {
  EXPECT_GE(largest_error({1, 1, 1, 11, 11}, by_largest_error), 25);
}

TEST(Dealing, TiesGoToTheLowerSource) {
  const std::vector<int64_t> weights{1, 1, 2};
  std::vector<int64_t> counts(3);
  std::vector<size_t> dealt;
  for (int t = 0; t < 8; ++t) {
    dealt.push_back(next_source(weights, counts));
    ++counts[dealt.back()];
  }
  EXPECT_EQ(dealt, (std::vector<size_t>{2, 0, 1, 2, 2, 0, 1, 2}));
}

TEST(Dealing, CountsFarOnDoNotOverflow) {
  const std::vector<int64_t> weights{1, kMaxWeights - 1};
  const int64_t rounds = (int64_t{1} << 40) / kMaxWeights;
  EXPECT_EQ(next_source(weights, std::vector{rounds, rounds * weights[1]}), 1u);
}

}  // namespace
}  // namespace ladder
