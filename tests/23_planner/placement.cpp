// The placement against the example of EPLB's README and small cases worked out by hand.
#include "chapters/23_planner/placement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "chapters/23_planner/expert_clock.h"

namespace ladder::planner {
namespace {

using Loads = std::vector<int64_t>;

/// Two layers of 12 experts; github.com/deepseek-ai/EPLB, README.md at commit d52c72d.
const Loads kLayer0{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
    kLayer1{20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};
constexpr PlacementShape kExample{.experts = 12, .copies = 16, .ranks = 8, .nodes = 2, .groups = 4};

TEST(Placement, IsThatOfTheExampleOfEplb) {
  EXPECT_EQ(place_experts(kLayer0, kExample),
            (Placement{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}));
  EXPECT_EQ(place_experts(kLayer1, kExample),
            (Placement{7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}));
}

// The table of the README: largest load of a rank over the mean.
TEST(Placement, MakesTheExampleEven) {
  const auto uneven = [](const Loads& loads, const PlacementShape& shape, bool placed = true) {
    const Placement all = placed ? place_experts(loads, shape) : aligned_experts(shape.experts);
    return std::round(1000 * slowdown(loads, all, shape.ranks)) / 1000;
  };
  constexpr PlacementShape kGlobal{.experts = 12, .copies = 16, .ranks = 8},
      kMoved{.experts = 12, .copies = 12, .ranks = 4};
  EXPECT_EQ(uneven(kLayer0, kMoved, false), 1.278);
  EXPECT_EQ(uneven(kLayer1, kMoved, false), 1.785);
  EXPECT_EQ(uneven(kLayer0, kMoved), 1.073);
  EXPECT_EQ(uneven(kLayer1, kMoved), 1.010);
  EXPECT_EQ(uneven(kLayer0, kExample), 1.208);
  EXPECT_EQ(uneven(kLayer1, kExample), 1.242);
  EXPECT_EQ(uneven(kLayer0, kGlobal), 1.073);
  EXPECT_EQ(uneven(kLayer1, kGlobal), 1.190);
}

TEST(Placement, IsThatOfTheHeader) {
  const Loads loads{90, 30, 50, 30};
  const Placement placed = place_experts(loads, {.experts = 4, .copies = 6, .ranks = 2});
  EXPECT_EQ(placed, (Placement{0, 1, 2, 0, 3, 2}));
  EXPECT_EQ(slowdown(loads, placed, 2), 1);
  EXPECT_EQ(slowdown(loads, aligned_experts(4), 2), 1.2);
}

TEST(Placement, HasEveryExpertAndKeepsGroupsOnANode) {
  const Placement placed = place_experts(kLayer0, kExample);
  for (const int64_t n : count_copies(placed, 12)) EXPECT_GE(n, 1);
  std::map<int64_t, int64_t> node_of_group;
  for (int64_t i = 0; i < 16; ++i) {
    const auto [at, first] = node_of_group.try_emplace(placed[i] / 3, i / 8);
    EXPECT_EQ(at->second, i / 8) << "expert " << placed[i];
  }
}

TEST(Placement, IsGlobalWhereNodesDoNotDivideGroups) {
  PlacementShape shape = kExample;
  shape.nodes = 8;
  const Placement global = place_experts(kLayer0, shape);
  shape.nodes = shape.groups = 1;
  EXPECT_EQ(global, place_experts(kLayer0, shape));
  // 182 of a rank if even: groups cost balance.
  EXPECT_LT(slowdown(kLayer0, global, 8), slowdown(kLayer0, place_experts(kLayer0, kExample), 8));
}

TEST(Placement, CopiesMakeTheHeaviestAsLightAsCanBe) {
  const Loads loads{7, 31, 16, 2, 31, 12};
  for (const int64_t copies : {6, 7, 8, 11, 17}) {
    const auto count = count_copies(copy_experts(loads, copies), 6);
    double most = 0;
    for (size_t e = 0; e < 6; ++e) most = std::max(most, double(loads[e]) / double(count[e]));
    // To be lighter than `most` takes more copies than there are.
    int64_t needed = 0;
    for (const int64_t load : loads) needed += int64_t(std::floor(double(load) / most + 1e-9)) + 1;
    EXPECT_GT(needed, copies);
    EXPECT_EQ(std::accumulate(count.begin(), count.end(), int64_t{0}), copies);
  }
}

TEST(Placement, OfEqualLoadsIsTheFirst) {
  EXPECT_EQ(copy_experts(Loads{5, 5, 5}, 5), (Loads{0, 1, 2, 0, 1}));
  EXPECT_EQ(deal(std::vector<double>{1, 1, 1, 1}, 2), (Loads{0, 2, 1, 3}));
  EXPECT_EQ(deal(std::vector<double>{1, 3, 2}, 3), (Loads{0, 1, 2})) << "one each stays";
}

TEST(Placement, OfNoLoadsIsWhole) {
  const Placement placed = place_experts(Loads(12), kExample);
  for (const int64_t n : count_copies(placed, 12)) EXPECT_GE(n, 1);
}

// The clock of experts against its formula and rows counted by hand.

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
