// The exchange alone, with choices made by hand: a rank that no token chooses, and rows that
// travel.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "common/comm/run_ranks.h"
#include "tests/22_expert_parallel/small_exchange.h"

namespace ladder::test {
namespace {

/// What a rank gets of tokens that are 1, 2, ... and of experts that double them.
struct Seen {
  int64_t arrived = 0;            ///< tokens that have come, own ones too
  std::vector<float> joined;      ///< of own tokens
  std::vector<float> never_came;  ///< what the owner holds for the others
};

/// Every token chooses this pair of experts.
std::vector<Seen> run_choices(int32_t a, int32_t b) {
  constexpr int64_t T = SmallExchange::T;
  std::vector<Seen> ranks(SmallExchange::kRanks);
  run_threads(SmallExchange::kRanks, [&](Comm& comm) {
    const std::vector<int32_t> chosen{a, b, a, b, a, b, a, b};
    SmallExchange own(comm, chosen, static_cast<float>(comm.rank() * T + 1));
    const int64_t rows = own.s.rows.offsets.data<int32_t>()[2];
    for (int64_t row = 0; row < rows; ++row)
      own.s.out.data<float>()[row] = 2 * own.s.inp.data<float>()[row];
    const Tensor out = own.join();

    Seen& seen = ranks[static_cast<size_t>(comm.rank())];
    for (int64_t t = 0; t < SmallExchange::kRanks * T; ++t) {
      seen.arrived += own.came(t) ? 1 : 0;
      if (!own.came(t)) seen.never_came.push_back(own.x.out.data<float>()[t]);
    }
    seen.joined.assign(out.data<float>(), out.data<float>() + T);
  });
  return ranks;
}

// Others hang here: a rank without tokens leaves out its part of a collective.
TEST(ExchangeTest, ARankThatNoTokenChoosesStillTakesPart) {
  const std::vector<Seen> ranks = run_choices(0, 1);
  EXPECT_EQ(ranks[0].arrived, 8);
  EXPECT_EQ(ranks[1].arrived, 0);
  EXPECT_EQ(ranks[0].joined, (std::vector<float>{4, 8, 12, 16}));
  EXPECT_EQ(ranks[1].joined, (std::vector<float>{20, 24, 28, 32}));
  for (const float x : ranks[1].never_came) EXPECT_TRUE(x == 0 && std::signbit(x)) << x;
}

TEST(ExchangeTest, ATokenGoesToBothOwners) {
  const std::vector<Seen> ranks = run_choices(1, 2);
  for (const Seen& seen : ranks) EXPECT_EQ(seen.arrived, 8);
  EXPECT_EQ(ranks[1].joined, (std::vector<float>{20, 24, 28, 32}));
}

}  // namespace
}  // namespace ladder::test
