// The modelled clock of experts against its formula and rows counted by hand.
#include "chapters/23_planner/expert_clock.h"

#include <gtest/gtest.h>

namespace ladder::planner {
namespace {

// Two ranks with two experts each. Rows: rank 0 has 5, 1, 2, 0 and rank 1 has 3, 1, 0, 4.
TEST(ExpertClock, WaitsForTheBusiestRank) {
  const std::vector<double> rows{5, 1, 2, 0, 3, 1, 0, 4};
  const BusiestRank busiest = busiest_rank(rows, aligned_experts(4), 2);
  EXPECT_EQ(busiest.work, 10) << "8 of expert 0 and 2 of expert 1";
  EXPECT_EQ(busiest.wire, 4) << "rank 0 gets 4 rows and sends 2";
  EXPECT_EQ(busiest.time({.work = 3, .wire = 0.5}), 10 * 3 + 2 * 4 * 0.5);
}

TEST(ExpertClock, CountsTheDirectionWithMoreRows) {
  const std::vector<double> rows{1, 3, 4, 5, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2};
  EXPECT_EQ(busiest_rank(rows, aligned_experts(4), 4).wire, 12) << "rank 0 sends, others get 5";
}

TEST(ExpertClock, CopiesShareRows) {
  // Expert 0 on both ranks: half of the rows of each rank go to either.
  const BusiestRank busiest =
      busiest_rank(std::vector<double>{5, 1, 3, 1}, Placement{0, 1, 0, 1}, 2);
  EXPECT_EQ(busiest.work, 5);
  EXPECT_EQ(busiest.wire, 3) << "rank 0 sends 2.5 + 0.5";
}

TEST(ExpertClock, EvenLoadsSendWhatTheFormulaSays) {
  for (const int64_t ranks : {1, 2, 4, 8}) {
    const std::vector<double> rows(8 * ranks, 6);
    const BusiestRank busiest = busiest_rank(rows, aligned_experts(8), ranks),
                      even = even_rank(8.0 * 6 * double(ranks), ranks);
    EXPECT_EQ(busiest.work, 48);
    EXPECT_EQ(busiest.wire, 48 * double(ranks - 1) / double(ranks)) << "kn (ep - 1) / ep";
    EXPECT_EQ(even.work, busiest.work);
    EXPECT_EQ(even.wire, busiest.wire);
  }
}

TEST(ExpertClock, PlacesByTheStepsBefore) {
  ExpertClock clock({.experts = 4, .copies = 4, .ranks = 2}, {.work = 1, .wire = 0});
  clock.count({{4, 4, 1, 1}});
  clock.count({{4, 4, 1, 1}});  // placed as 0 2 | 1 3
  clock.count({{4, 1, 4, 1}});  // and still so: it cannot know
  EXPECT_EQ(clock.aligned(), (std::vector<double>{1.6, 1}));
  EXPECT_EQ(clock.placed(), (std::vector<double>{1, 1.6}));
  EXPECT_EQ(clock.experts()[0], (Placement{0, 2, 1, 3}));
}

}  // namespace
}  // namespace ladder::planner
