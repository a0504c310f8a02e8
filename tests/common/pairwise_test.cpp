// The pairwise choice: nothing illegal, nothing missing, and not everything.
#include "tests/common/pairwise.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace ladder::test {
namespace {

const std::vector<Factor> kFactors = {{"--a 0", "--a 1", "--a 2"},
                                      {"--b 0", "--b 1", "--b 2", "--b 3"},
                                      {"", "--c"},
                                      {"--d 0", "--d 1", "--d 2"}};

/// Whether any of `rows` has value v of factor i and value w of factor j.
bool meet(const std::vector<Row>& rows, size_t i, size_t v, size_t j, size_t w) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return row[i] == v && row[j] == w; });
}

TEST(Pairwise, EveryPairOccurs) {
  const std::vector<Row> rows = pairwise(kFactors, [](const Row&) { return true; });
  for (size_t i = 0; i < kFactors.size(); ++i)
    for (size_t j = i + 1; j < kFactors.size(); ++j)
      for (size_t v = 0; v < kFactors[i].size(); ++v)
        for (size_t w = 0; w < kFactors[j].size(); ++w)
          EXPECT_TRUE(meet(rows, i, v, j, w)) << kFactors[i][v] << " " << kFactors[j][w];
  EXPECT_GE(rows.size(), 12u);  // as a and b alone
  EXPECT_LT(rows.size(), 24u);  // of 72
}

// a = 2 goes with b = 0 only. So it meets no other b, and all that it may meet.
TEST(Pairwise, WhatIsIllegalIsNotChosenAndWhatIsLeftIs) {
  const std::vector<Row> rows =
      pairwise(kFactors, [](const Row& row) { return row[0] != 2 || row[1] == 0; });
  EXPECT_TRUE(meet(rows, 0, 2, 1, 0));
  for (const size_t b : {1, 2, 3}) EXPECT_FALSE(meet(rows, 0, 2, 1, b));
  for (const size_t d : {0, 1, 2}) EXPECT_TRUE(meet(rows, 0, 2, 3, d));
  for (const size_t b : {1, 2, 3}) EXPECT_TRUE(meet(rows, 0, 1, 1, b));
}

TEST(Pairwise, FlagsOfARow) {
  EXPECT_EQ(flags_of(kFactors, {2, 0, 0, 1}), "--a 2 --b 0  --d 1 ");
  EXPECT_EQ(flags_of(kFactors, {0, 3, 1, 2}), "--a 0 --b 3 --c --d 2 ");
}

}  // namespace
}  // namespace ladder::test
