// The clock of experts against its formula and rows counted by hand.
#include "chapters/23_planner/expert_clock.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace ladder::planner {
namespace {

using Loads = std::vector<int64_t>;

TEST(ExpertClock, WaitsForTheBusiestRank) {
  EXPECT_EQ(slowdown(Loads{8, 2, 2, 4}, aligned_experts(4), 2), 10 / 8.0);
  EXPECT_EQ(slowdown(Loads{8, 2, 2, 4}, aligned_experts(4), 1), 1);
  // Half of expert 0 on each rank.
  EXPECT_EQ(slowdown(Loads{8, 2}, Placement{0, 1, 0, 1}, 2), 1);
  EXPECT_EQ(slowdown(Loads{8, 6, 2}, Placement{0, 1, 0, 2}, 2), 10 / 8.0);
}

// Rows that a rank gets from others, or sends: an n-th of each expert's rows is from each rank.
TEST(ExpertClock, WiresAreAsUnevenAsRanks) {
  for (const Loads& loads : {Loads{8, 2, 2, 4}, {9, 9, 9, 1}, {12, 0, 0, 0}, {1, 5, 5, 5}}) {
    const double n = 4, all = double(std::reduce(loads.begin(), loads.end()));
    double most = 0;
    for (const int64_t work : loads)
      most = std::max({most, double(work) * (n - 1) / n, (all - double(work)) / n});
    EXPECT_DOUBLE_EQ(most / (all / n * (n - 1) / n), slowdown(loads, aligned_experts(4), 4));
  }
}

TEST(ExpertClock, PlacesByTheStepsBefore) {
  ExpertClock clock({.experts = 4, .copies = 4, .ranks = 2});
  clock.count({{4, 4, 1, 1}});
  clock.count({{4, 4, 1, 1}});  // placed as 0 2 | 1 3
  clock.count({{4, 1, 4, 1}});  // and still so: it cannot know
  EXPECT_EQ(clock.aligned(), (std::vector<double>{1.6, 1}));
  EXPECT_EQ(clock.placed(), (std::vector<double>{1, 1.6}));
  EXPECT_EQ(clock.experts()[0], (Placement{0, 2, 1, 3}));
}

}  // namespace
}  // namespace ladder::planner
