// The plan: pieces without a target lost, rows without a piece lost, and the order of both.
#include "chapters/26_packing/plan.h"

#include <random>

#include <gtest/gtest.h>

namespace ladder {
namespace {

constexpr int64_t kT = 8;

RowPlan plan(const std::vector<int64_t>& lengths, Pack pack, int64_t M = kT) {
  return plan_rows(lengths, kT, M, pack);
}

TEST(Pieces, LearnEachTargetOnce) {
  for (int64_t n = 0; n < 4 * kT; ++n) {
    std::vector<Piece> pieces;
    cut({100, 100 + n}, kT, pieces);
    int64_t next = 100;  // the first token of the next piece: the last target of this one
    for (const Piece& piece : pieces) {
      EXPECT_EQ(piece.begin, next);
      EXPECT_EQ(piece.later, piece.begin > 100);
      EXPECT_GE(piece.length, 1);
      EXPECT_LE(piece.length, kT);
      next += piece.length;
    }
    EXPECT_EQ(next, n < 2 ? 100 : 100 + n - 1) << n;
  }
}

// By hand, T = 8.
TEST(Plan, FirstFitDecreasing) {
  // 6 3 5 2 2: 6 | 5 | 3 into the second | 2 into the first | 2 into a third.
  EXPECT_EQ(plan({3, 6, 2, 5, 2}, Pack::Ffd), (RowPlan{{0, 3}, {1, 2}, {4}}));
  // The lower number first.
  EXPECT_EQ(plan({4, 4, 4}, Pack::Ffd), (RowPlan{{0, 1}, {2}}));
  EXPECT_EQ(plan({1, 1, 1, 1}, Pack::Ffd, 2), (RowPlan{{0, 1}, {2, 3}}));
  EXPECT_EQ(plan({}, Pack::Ffd), RowPlan{});
}

TEST(Plan, Greedy) {
  EXPECT_EQ(plan({3, 6, 2, 5, 2}, Pack::Greedy), (RowPlan{{0}, {1, 2}, {3, 4}}));
  EXPECT_EQ(plan({1, 1, 1}, Pack::Greedy, 2), (RowPlan{{0, 1}, {2}}));
}

TEST(Plan, HasEachPieceOnceAndNoRowTooLong) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> lengths(random() % 40);
    for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % kT);
    const int64_t M = 1 + static_cast<int64_t>(random() % kT);
    for (const Pack pack : {Pack::Ffd, Pack::Greedy}) {
      std::vector<int64_t> seen, first;
      for (const std::vector<int64_t>& row : plan(lengths, pack, M)) {
        int64_t positions = 0;
        for (const int64_t piece : row) positions += lengths[static_cast<size_t>(piece)];
        EXPECT_LE(positions, kT);
        EXPECT_LE(std::ssize(row), M);
        EXPECT_TRUE(std::ranges::is_sorted(row));
        seen.insert(seen.end(), row.begin(), row.end());
        first.push_back(row.front());
      }
      EXPECT_TRUE(std::ranges::is_sorted(first));
      std::ranges::sort(seen);
      std::vector<int64_t> all(lengths.size());
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all);
    }
  }
}

}  // namespace
}  // namespace ladder
