// How the tokens of a sequence fall into leaves, against examples on paper.
#include "kernels/token_leaves.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ladder::test {
namespace {

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
          for (int64_t t = range.begin; t < range.end; ++t) {
            ++met[static_cast<size_t>(t)];
            EXPECT_EQ(leaf_of_token(t, n, T), i) << "token " << t << " of " << T;
          }
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
