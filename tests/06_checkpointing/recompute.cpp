// Which blocks a policy computes again, and what it keeps.
#include "chapters/06_checkpointing/recompute.h"

#include "tests/common/run_files.h"
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

TEST(Recompute, SegmentsOfThreeInSevenBlocks) {
  // Forward ends with the segment of block 6, so its activations are still there.
  EXPECT_EQ(segments("every:3", 7), (std::vector<Range>{{3, 6}, {0, 3}}));
  const Recompute recompute("every:3", 7);
  for (const int64_t l : {0, 1, 3, 4, 6}) EXPECT_EQ(recompute.segment_before(l), Range{}) << l;
  EXPECT_EQ(recompute.segment_before(2), (Range{0, 3}));
  EXPECT_EQ(recompute.segment_before(5), (Range{3, 6}));
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

TEST(Recompute, EveryBlockButThoseOfTheLastSegmentIsComputedOnce) {
  for (int64_t L = 1; L <= 20; ++L)
    for (int64_t k = 1; k <= L; ++k) {
      int64_t next = (L - 1) / k * k;  // where the last segment begins
      for (const Range segment : segments(fmt::format("every:{}", k), L)) {
        EXPECT_EQ(segment.end, next);
        EXPECT_EQ(segment.size(), k);
        next = segment.begin;
      }
      EXPECT_EQ(next, 0) << L << " in segments of " << k;
    }
}

TEST(Recompute, SqrtSegmentsAreAsLongAsTheRootRoundedUp) {
  for (const auto& [L, k] : {std::pair{1, 1}, {2, 2}, {4, 2}, {5, 3}, {9, 3}, {12, 4}, {48, 7}})
    EXPECT_EQ(Recompute("sqrt", L).sets(), k) << L;
}

TEST(Recompute, PartsAreThoseOfAllBlocksButTheLast) {
  // Norms, attention, GELU.
  const auto parts = [](const char* policy, int64_t l) {
    const DroppedParts p = Recompute(policy, 3).parts_before(l);
    return std::array{p.norms, p.attention, p.act};
  };
  const std::array nothing{false, false, false};
  for (const int64_t l : {0, 1}) {
    EXPECT_EQ(parts("selective", l), (std::array{true, true, true}));
    EXPECT_EQ(parts("selective:attention", l), (std::array{false, true, false}));
    EXPECT_EQ(parts("selective:mlp", l), (std::array{false, false, true}));
    for (const char* policy : {"none", "full", "sqrt"})
      EXPECT_EQ(parts(policy, l), nothing) << policy;
  }
  for (const char* policy : {"selective", "selective:attention", "selective:mlp"})
    EXPECT_EQ(parts(policy, 2), nothing) << policy;
}

TEST(Recompute, PlanSharesWhatThePolicyDrops) {
  const auto plan = [](const char* policy) {
    return Recompute(policy, 7).plan({.dtype = Dtype::BF16});
  };
  for (const auto& [policy, sets] : {std::pair{"none", 7}, {"every:3", 3}, {"full", 1}}) {
    EXPECT_EQ(plan(policy).sets, sets) << policy;
    EXPECT_EQ(plan(policy).dtype, Dtype::BF16) << policy;
    EXPECT_TRUE(plan(policy).own_input && plan(policy).own_norm && plan(policy).own_att &&
                plan(policy).own_act)
        << policy;
  }
  const ActivationPlan selective = plan("selective");
  EXPECT_EQ(selective.sets, 7);
  EXPECT_FALSE(selective.own_norm || selective.own_att || selective.own_act);
  EXPECT_TRUE(selective.own_input);
  const ActivationPlan attention = plan("selective:attention"), mlp = plan("selective:mlp");
  EXPECT_TRUE(attention.own_norm && !attention.own_att && attention.own_act);
  EXPECT_TRUE(mlp.own_norm && mlp.own_att && !mlp.own_act);
  // What is dropped already stays dropped.
  EXPECT_FALSE(Recompute("none", 7).plan({.own_norm = false, .own_act = false}).own_norm);
}

TEST(Recompute, NamesAllPoliciesThatItAccepts) {
  EXPECT_EQ(Recompute("full", 4).all(),
            (std::vector<std::string>{"none", "selective", "selective:attention", "selective:mlp",
                                      "full", "every:2", "every:3"}));
  // All blocks are one segment: like none, unless micro-batches in between share its memory.
  EXPECT_EQ(Recompute("full", 4, /*at_once=*/false).all().back(), "every:4");
  for (const bool at_once : {true, false})
    for (int64_t L = 1; L < 13; ++L)
      for (const Recompute all("none", L, at_once); const std::string& policy : all.all())
        EXPECT_EQ(all.under(policy).segment_before(L - 1).size() > 0,
                  !at_once && policy != "none" && !all.under(policy).selective())
            << policy;
}

TEST(Recompute, Refusals) {
  const std::string legal =
      "legal are none, every:1 to every:7, sqrt, full, selective, selective:attention "
      "and selective:mlp";
  for (const char* policy :
       {"", "every", "every:", "every:0", "every:-1", "every:8", "every:2x", "every: 2",
        "every:99999999999999999999", "Full", "sometimes", "2", "selective:", "selective:norms"})
    EXPECT_USER_ERROR(Recompute(policy, 7), legal);
}

}  // namespace
}  // namespace ladder::test
