// Which blocks a policy computes again, and which policies there are. That each changes no bit and
// takes the memory that is predicted: ../layouts.txt.
#include "chapters/06_checkpointing/recompute.h"

#include "tests/kernels/testing.h"

namespace ladder::test {
namespace {

/// The segments that backward computes again, from the last block to the first.
std::vector<Range> segments(const std::string& policy, int64_t L) {
  const Recompute recompute(policy, L);
  std::vector<Range> all;
  for (int64_t l = L - 1; l >= 0; --l)
    if (const Range segment = recompute.segment_before(l); segment.size() > 0)
      all.push_back(segment);
  return all;
}

TEST(Recompute, Segments) {
  EXPECT_EQ(segments("every:3", 6), (std::vector<Range>{{0, 3}}));
  EXPECT_EQ(segments("every:2", 5), (std::vector<Range>{{2, 4}, {0, 2}}));
  EXPECT_EQ(segments("full", 3), (std::vector<Range>{{1, 2}, {0, 1}}));
  EXPECT_EQ(segments("every:1", 3), segments("full", 3));
  for (const char* policy : {"none", "selective", "selective:mlp", "every:5"})
    EXPECT_TRUE(segments(policy, 5).empty()) << policy;
  EXPECT_TRUE(segments("full", 1).empty());
}

TEST(Recompute, SqrtSegmentsAreAsLongAsTheRootRoundedUp) {
  for (const auto& [L, k] : {std::pair{1, 1}, {2, 2}, {4, 2}, {5, 3}, {9, 3}, {12, 4}, {48, 7}})
    EXPECT_EQ(Recompute("sqrt", L).sets(), k) << L;
}

TEST(Recompute, NamesAllPoliciesThatItAccepts) {
  EXPECT_EQ(Recompute("full", 4).all(),
            (std::vector<std::string>{"none", "selective", "selective:attention", "selective:mlp",
                                      "full", "every:2", "every:3"}));
  // All blocks are one segment: like none, unless micro-batches in between share its memory.
  EXPECT_EQ(Recompute("full", 4, /*at_once=*/false).all().back(), "every:4");
  for (const bool at_once : {true, false})
    for (int64_t L = 1; L < 13; ++L)
      for (const std::string& policy : Recompute("none", L, at_once).all())
        EXPECT_EQ(Recompute(policy, L, at_once).segment_before(L - 1).size() > 0,
                  !at_once && policy != "none" && !policy.starts_with("selective"))
            << policy;
}

}  // namespace
}  // namespace ladder::test
