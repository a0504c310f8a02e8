// Negative controls of 20_context_parallel: what goes wrong on purpose must be seen.
#include "tests/20_context_parallel/context_runs.h"

namespace ladder::test {
namespace {

class ContextControls : public ContextRuns {
 protected:
  const std::string flags = kGpt + "--batch 2 ";
  const Trace alone = one(flags);

  Trace with(const std::string& ours, const std::string& fault) const {
    return shared(flags + ours + " --fault " + fault);
  }
  /// All steps were taken, and other weights came of it. (What is lost into fresh memory is NaN.)
  bool is_seen(const std::string& ours, const std::string& fault) const {
    const Trace faulty = with(ours, fault);
    return faulty.steps.size() == alone.steps.size() &&
           faulty.steps.back().param_hash != alone.steps.back().param_hash;
  }
};

// Of two layers, cp 4: forward passes keys on 3 times a layer, backward 3 times with as many
// gradients in between. Each message lost is a chunk of keys left out, or one that is there twice
// (the one before stays in its place); with its halves swapped early keys are taken for late ones.
TEST_F(ContextControls, EveryMessageOfTheRing) {
  const std::string ring = "--cp 4 --context ring";
  for (int nth = 0; nth < 2 * 3 + 2 * 6; ++nth)
    EXPECT_TRUE(is_seen(ring, fmt::format("skip:recv:{}", nth))) << nth;
  for (const std::string fault : {"swap:recv:0", "swap:recv:7", "swap:recv:8"})
    EXPECT_TRUE(is_seen(ring, fault)) << fault;
}

// Both halves of keys forward, the same and both halves of gradients backward.
TEST_F(ContextControls, EverySumAndGatherOfKeys) {
  const std::string gather = "--cp 4 --context gather";
  for (const std::string fault :
       {"skip:all_gather:0", "swap:all_gather:0", "skip:all_gather:1", "skip:all_gather:3",
        "skip:reduce_scatter:0", "twice:reduce_scatter:0", "skip:reduce_scatter:1"})
    EXPECT_TRUE(is_seen(gather, fault)) << fault;
}

// Forward one there and one back; backward three there and one back.
TEST_F(ContextControls, EveryExchangeOfTokensForHeads) {
  const std::string ulysses = "--cp 4 --context ulysses";
  for (int nth = 0; nth < 2 * 2 + 2 * 4; ++nth)
    EXPECT_TRUE(is_seen(ulysses, fmt::format("skip:all_to_all:{}", nth))) << nth;
  EXPECT_TRUE(is_seen(ulysses, "swap:all_to_all:2"));
}

// The loss of a sequence is a sum over its ranks. Twice, it is cp times what it should be; targets
// that are counted twice make every gradient smaller.
TEST_F(ContextControls, LossesAndTargetsCountOnce) {
  const std::string gather = "--cp 2 --context gather";
  const Trace doubled = with(gather, "twice:all_reduce:0");
  ASSERT_TRUE(is_whole(doubled));
  EXPECT_NE(doubled.steps.front().grad_norm, alone.steps.front().grad_norm);
}

// Sums over tokens have other leaves there. Attention has not: the first loss is the same.
TEST_F(ContextControls, ContiguousOrderHasOtherBits) {
  const Trace contiguous = shared(flags + "--cp 4 --context ring --order contiguous");
  EXPECT_TRUE(different_trace(alone, contiguous));
  EXPECT_EQ(contiguous.steps.front().lr, alone.steps.front().lr);
}

}  // namespace
}  // namespace ladder::test
