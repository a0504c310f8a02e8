// 30_hsdp: groups of any size have the bits of chapter 06 on one rank. What a lost or misplaced sum
// does is seen by the mutants of labs/30_hsdp; here a fault of each group's first collective is.
#include <fmt/format.h>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

constexpr int kRanks = 8;

class HsdpBits : public SameTraceSmall {
 protected:
  Trace alone(const std::string& flags) const { return trace("06_checkpointing", flags); }
  Trace groups(int replicas, const std::string& flags) const {
    return trace("30_hsdp", fmt::format("--ranks {} --replicas {} {}", kRanks, replicas, flags));
  }
};

// R x S: 1 x 8, 2 x 4, 4 x 2, 8 x 1.
TEST_F(HsdpBits, EverySplitIsChapter06) {
  for (const std::string flags :
       {"--batch 32 --clip 1 ", "--batch 32 --precision bf16 --optimizer lion ",
        "--batch 32 --tied-head --clip 1 ", "--batch 32 --recompute full --eval-every 1 "}) {
    const Trace one = alone(flags);
    for (const int replicas : {1, 2, 4, 8})
      for (const int micro : {1, 2, 4})
        EXPECT_TRUE(
            same_trace(one, groups(replicas, fmt::format("{}--micro-batch {}", flags, micro))))
            << flags << replicas << " groups, " << micro << " sequences";
  }
}

TEST_F(HsdpBits, LlamaToo) {
  const std::string flags = "--model llama-nano --layers 2 --batch 16 --clip 1 ";
  const Trace one = SameTrace::trace("06_checkpointing", flags);
  for (const std::string split :
       {"--ranks 4 --replicas 2 --micro-batch 2", "--ranks 8 --replicas 4"})
    EXPECT_TRUE(same_trace(one, SameTrace::trace("30_hsdp", flags + split))) << split;
}

// A checkpoint does not know of groups.
TEST_F(HsdpBits, GoesOnWithOtherGroups) {
  const Trace whole = alone("--batch 16 ");
  const Trace first = trace("30_hsdp", "--batch 16 --ranks 4 --replicas 2 --save half", {0, kHalf});
  for (const std::string rest : {"--ranks 8 --replicas 4", "--ranks 2"})
    EXPECT_TRUE(same_trace(
        whole, joined(first, trace("30_hsdp", "--batch 16 --load half " + rest, {kHalf, kSteps}))))
        << rest;
}

// Each group is its own: a factorized optimizer is refused for shards, and legal for replicas.
TEST_F(HsdpBits, ReplicasAloneMayHaveAdafactor) {
  const std::string flags = "--batch 16 --optimizer adafactor ";
  EXPECT_TRUE(same_trace(alone(flags), groups(kRanks, flags)));
}

// The first collectives of the groups: gathers of weights and losses, sums of a section, and of the
// gradient over replicas.
TEST_F(HsdpBits, NegativeControlEveryFaultIsSeen) {
  const Trace one = alone("--batch 8 ");
  for (const std::string fault : {"skip:all_gather:1", "swap:all_gather:2", "skip:all_reduce:0",
                                  "twice:all_reduce:0", "skip:reduce_scatter:0"})
    EXPECT_TRUE(
        different_trace(one, trace("30_hsdp", "--batch 8 --ranks 4 --replicas 2 --fault " + fault)))
        << fault;
}

}  // namespace
}  // namespace ladder::test
