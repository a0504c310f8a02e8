// Team: every thread does its part of every job, whether it watched or slept before.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/team.h"

namespace ladder {
namespace {

void run_rounds(Team& team, int rounds, std::chrono::microseconds rest) {
  std::vector<int> done(static_cast<size_t>(team.threads()));
  auto part = [&](int thread) { ++done[static_cast<size_t>(thread)]; };
  for (int round = 1; round <= rounds; ++round) {
    team.run(part);
    ASSERT_EQ(std::count(done.begin(), done.end(), round), team.threads()) << "round " << round;
    std::this_thread::sleep_for(rest);
  }
}

TEST(Team, EachThreadDoesItsPart) {
  using std::chrono::microseconds;
  for (const int threads : {1, 2, 3, 8}) {
    Team team(threads);
    run_rounds(team, 2000, microseconds(0));
    run_rounds(team, 20, microseconds(2000));  // workers sleep
  }
}

TEST(Team, ASlowThreadIsWaitedFor) {
  Team team(3);
  std::atomic<int> done = 0;
  auto part = [&](int thread) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * thread));
    ++done;
  };
  team.run(part);
  EXPECT_EQ(done, 3);
}

TEST(Team, RethrowsAndGoesOn) {
  Team team(4);
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> calls = 0;
    auto part = [&](int thread) {
      ++calls;
      if (thread % 2 == 1) throw std::runtime_error(std::to_string(thread));
    };
    std::string error = "none";
    try {
      team.run(part);
    } catch (const std::runtime_error& e) {
      error = e.what();
    }
    EXPECT_EQ(error, "1");
    EXPECT_EQ(calls, 4);
  }
  run_rounds(team, 10, std::chrono::microseconds(0));
}

// Ranks that are threads have one team each.
TEST(Team, SeveralTeams) {
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([rank] {
      for (const int threads : {2, 2 + rank, 2})
        run_rounds(Team::mine(threads), 200, std::chrono::microseconds(0));
    });
}

TEST(Team, IsKept) {
  Team* const first = &Team::mine(2);
  EXPECT_EQ(&Team::mine(2), first);
  EXPECT_EQ(Team::mine(3).threads(), 3);
}

}  // namespace
}  // namespace ladder
