// The order of sums: against an independent definition, and cut as layouts cut it; and how the
// tokens of a sequence fall into leaves, against examples on paper.
#include "kernels/tree.h"

#include <bit>
#include <span>
#include <string>
#include <vector>

#include "kernels/token_leaves.h"
#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

/// The tree by its shape: the left child is the largest power of two that leaves a right one.
float by_definition(std::span<const float> leaves) {
  if (leaves.size() == 1) return leaves[0];
  const size_t left = std::bit_floor(leaves.size() - 1);
  return by_definition(leaves.first(left)) + by_definition(leaves.subspan(left));
}

std::vector<float> random_floats(int64_t n) {
  Sandbox box(ref_kernels());
  const Tensor x = box.random({n});
  return {x.data<float>(), x.data<float>() + n};
}

float sum_of(std::span<const float> leaves) {
  return tree_sum<float>(static_cast<int64_t>(leaves.size()), [&](int64_t i) { return leaves[i]; });
}

TEST(Tree, HasTheShapeOfItsDefinition) {
  const std::vector<float> leaves = random_floats(300);
  for (size_t n = 1; n <= leaves.size(); ++n)
    EXPECT_EQ(sum_of(std::span(leaves).first(n)), by_definition(std::span(leaves).first(n))) << n;
}

TEST(Tree, AlignedRunsCanBeSummedAlone) {
  const std::vector<float> leaves = random_floats(200);
  for (const size_t n : {5U, 8U, 12U, 64U, 100U, 200U})
    for (size_t run = 1; run <= n; run *= 2) {
      TreeSum<float> joined;
      for (size_t begin = 0; begin < n; begin += run)
        joined.push(sum_of(std::span(leaves).subspan(begin, std::min(run, n - begin))));
      EXPECT_EQ(joined.total(), sum_of(std::span(leaves).first(n))) << n << " in runs of " << run;
    }
}

TEST(Tree, NegativeControlOtherOrdersDiffer) {
  const std::vector<float> leaves = random_floats(300);
  float running = 0;
  TreeSum<float> unaligned;  // runs of three leaves are no sub-trees
  int running_differs = 0, unaligned_differs = 0;
  for (size_t n = 3; n <= leaves.size(); n += 3) {
    for (size_t i = n - 3; i < n; ++i) running += leaves[i];
    unaligned.push(sum_of(std::span(leaves).subspan(n - 3, 3)));
    const float want = sum_of(std::span(leaves).first(n));
    running_differs += running != want;
    unaligned_differs += unaligned.total() != want;
  }
  EXPECT_GT(running_differs, 50);  // of 100; the others agree by luck
  EXPECT_GT(unaligned_differs, 50);
}

TEST(Tree, OfNothingIsMinusZero) {
  for (const float nothing :
       {TreeSum<float>().total(), leaves_sum<float>(8, 0, [](auto) { return 1.0F; })}) {
    EXPECT_EQ(nothing, 0);
    EXPECT_TRUE(std::signbit(nothing));
  }
  EXPECT_EQ(TreeSum<float>().total(7), 7);
  TreeSum<float> one;
  one.push(-0.0F);
  EXPECT_TRUE(std::signbit(one.total()));  // no zero was added
}

TEST(Tree, LeavesCoverTheRangeInOrder) {
  for (const int64_t K : {0, 1, 5, 8, 13, 64, 1000})
    for (const int64_t n : {1, 2, 3, 8}) {
      int64_t end = 0;
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_EQ(leaf(i, n, K).begin, end);
        end = leaf(i, n, K).end;
        EXPECT_LE(leaf(i, n, K).size(), (K + n - 1) / n);
      }
      EXPECT_EQ(end, K);
    }
}

TEST(Tree, EmptyLeavesKeepTheirPlace) {
  const std::vector<float> x = random_floats(5);
  // Of eight leaves over five elements 0, 2 and 5 are empty.
  const float want = (x[0] + x[1]) + (x[2] + (x[3] + x[4]));
  EXPECT_EQ(leaves_sum<float>(8, 5, [&](int64_t k) { return x[k]; }), want);
}

TEST(Tree, LeavesAscendInside) {
  const std::vector<float> x = random_floats(60);
  std::vector<float> sums;
  for (int64_t begin = 0; begin < 60; begin += 15) {
    float sum = 0;
    for (int64_t k = begin; k < begin + 15; ++k) sum += x[k];
    sums.push_back(sum);
  }
  EXPECT_EQ(leaves_sum<float>(4, 60, [&](int64_t k) { return x[k]; }), by_definition(sums));
}

TEST(TokenLeaves, ThereAreAsManyAsTokensAllow) {
  for (const auto& [T, n] : {std::pair{0, 1},
                             {1, 1},
                             {127, 1},
                             {128, 2},
                             {255, 2},
                             {256, 4},
                             {511, 4},
                             {512, 8},
                             {1024, 8},
                             {1 << 20, 8}})
    EXPECT_EQ(matrix_leaves(kTokenChunks, T), n) << T;
  // A half of a sequence has a half of its leaves.
  EXPECT_EQ(matrix_leaves(kTokenChunks / 2, 1024), 4);
  EXPECT_EQ(matrix_leaves(kTokenChunks / 2, 128), 2);
  EXPECT_EQ(matrix_leaves(kTokenChunks / 8, 1024), 1);
  EXPECT_EQ(matrix_leaves(1, 1024), 1);
  EXPECT_EQ(vector_leaves(kTokenChunks), 8);
  EXPECT_EQ(vector_leaves(2), 1);
  EXPECT_EQ(vector_leaves(1), 1);
}

TEST(TokenLeaves, AreFolded) {
  EXPECT_EQ(fold(0, 4, 512).early, (Range{0, 64}));
  EXPECT_EQ(fold(0, 4, 512).late, (Range{448, 512}));
  EXPECT_EQ(fold(3, 4, 512).early, (Range{192, 256}));
  EXPECT_EQ(fold(3, 4, 512).late, (Range{256, 320}));
}

TEST(TokenLeaves, EveryTokenIsInOneOfThem) {
  for (const int64_t n : {1, 2, 4, 8})
    for (const int64_t T : {1, 3, 16, 100, 515}) {
      std::vector<int> met(static_cast<size_t>(T));
      for (int64_t i = 0; i < n; ++i) {
        const auto [early, late] = fold(i, n, T);
        for (const Range& range : {early, late})
          for (int64_t t = range.begin; t < range.end; ++t) ++met[static_cast<size_t>(t)];
      }
      EXPECT_EQ(met, std::vector<int>(static_cast<size_t>(T), 1)) << n << " leaves";
    }
}

/// A sum that writes down its order.
struct Written {
  std::string text;
  Written(double) {}  // kNothing
  explicit Written(int64_t t) : text(std::to_string(t)) {}
  Written() = default;
  Written& operator+=(const Written& other) {
    text = text.empty() ? other.text : text + "+" + other.text;
    return *this;
  }
  friend Written operator+(const Written& a, const Written& b) {
    Written sum;
    sum.text = "(" + a.text + ")+(" + b.text + ")";
    return sum;
  }
};

TEST(TokenLeaves, TheOrdersOfTheSums) {
  const auto term = [](int64_t t) { return Written(t); };
  EXPECT_EQ(matrix_sum<Written>(kTokenChunks, 5, term).text, "0+1+2+3+4");
  EXPECT_EQ(vector_sum<Written>(8, 8, term).text, "(((0)+(7))+((1)+(6)))+(((2)+(5))+((3)+(4)))");
  EXPECT_EQ(vector_sum<Written>(2, 6, term).text, "(0+1+2)+(3+4+5)");
  EXPECT_EQ(vector_sum<Written>(1, 3, term).text, "(0+1+2)+()");
  std::string first = "0", second;
  for (int t = 1; t < 128; ++t) first += t < 32 || t >= 96 ? "+" + std::to_string(t) : "";
  for (int t = 32; t < 96; ++t) second += (t > 32 ? "+" : "") + std::to_string(t);
  EXPECT_EQ(matrix_sum<Written>(kTokenChunks, 128, term).text, "(" + first + ")+(" + second + ")");
}

}  // namespace
}  // namespace ladder::test
