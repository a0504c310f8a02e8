// 07 to 10, and 18: the bits of 06, on any number of ranks and however they communicate. That these
// tests would see a fault: controls.cpp.
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

constexpr int kCounts[] = {1, 2, 4, 8}, kMicroSteps[] = {1, 2, 4};

class RanksBits : public SameTraceRanks {};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksBits,
                         ::testing::Combine(::testing::ValuesIn(data_parallel()),
                                            ::testing::ValuesIn(tiers())),
                         row_and_tier);

// Every pair of ranks, micro-steps and tier; all triples run in scripts/nightly.sh.
TEST_P(RanksBits, AreThoseOfOneRank) {
  const Trace one = alone("--clip 1 --batch 32");
  for (size_t i = 0; i < std::size(kCounts); ++i) {
    const Cut cut{kCounts[i], kMicroSteps[(i + tier_index()) % std::size(kMicroSteps)]};
    EXPECT_TRUE(same_trace(one, ranks("--clip 1" + flags_of(cut)))) << flags_of(cut);
  }
}

class RanksMore : public SameTraceSmall, public ::testing::WithParamInterface<DataParallel> {
 protected:
  Trace alone(const std::string& flags) const { return trace("06_checkpointing", flags); }
  Trace ranks(const std::string& flags) const { return trace(GetParam().chapter, flags); }
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksMore, ::testing::ValuesIn(data_parallel()), row_name);

TEST_P(RanksMore, EveryWayToCommunicate) {
  const Trace one = alone("--clip 1 --batch 16");
  const std::vector<std::string>& ways = GetParam().ways;
  for (size_t i = 0; i < ways.size(); ++i)
    for (const int count : {2, 4, 8}) {
      const Cut cut{count, i % 2 == 0 ? 1 : 2};
      EXPECT_TRUE(same_trace(one, ranks("--clip 1 " + ways[i] + flags_of(cut, 16))))
          << ways[i] << flags_of(cut, 16);
    }
}

TEST_P(RanksMore, ThreadsOfEachRank) {
  const Trace one = alone("--clip 1 --batch 8");
  for (const std::string threads : {"2", "3"})
    EXPECT_TRUE(same_trace(one, ranks("--clip 1 --threads " + threads + flags_of({2, 2}, 8))))
        << threads;
}

// A bucket holds whole sections, and a tensor of 24 channels has a gap behind it.
TEST_P(RanksMore, OddSizes) {
  const std::string odd = "--model tiny --channels 24 --heads 3 --seq-len 9 --layers 3 --clip 1 ";
  const Trace one = SameTrace::trace("06_checkpointing", odd + "--batch 8");
  for (const Cut cut : {Cut{2, 1}, Cut{4, 2}, Cut{8, 1}})
    EXPECT_TRUE(same_trace(one, SameTrace::trace(GetParam().chapter, odd + flags_of(cut, 8))))
        << flags_of(cut, 8);
}

TEST_P(RanksMore, EvaluationsAndSamplesChangeNothing) {
  EXPECT_TRUE(
      same_trace(alone("--batch 8"), ranks("--eval-every 1 --sample 4 --ranks 4 --batch 8")));
}

}  // namespace
}  // namespace ladder::test
