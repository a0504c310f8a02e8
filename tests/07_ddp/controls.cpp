// Negative controls of the equality between ranks: a communicator that loses, doubles, spoils or
// swaps one message, or a sum in another order, must be seen.
#include <cmath>
#include <cstdlib>

#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class RanksControls : public SameTraceSmall, public ::testing::WithParamInterface<DataParallel> {
 protected:
  Trace ranks(const std::string& flags) const { return trace(GetParam().chapter, common + flags); }
  // Without clipping, which undoes a factor of two.
  const std::string common = "--batch 8 --bucket-mb 0.5 ";
  const Trace one = trace("06_checkpointing", "--batch 8");
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksControls, ::testing::ValuesIn(data_parallel()),
                         row_name);

/// Success if `other` has all its steps and ends with other weights than `one`. Its numbers may be
/// NaN: a rank may have computed with what it never got.
::testing::AssertionResult ends_elsewhere(const Trace& one, const Trace& other) {
  if (other.steps.size() != one.steps.size())
    return ::testing::AssertionFailure() << other.steps.size() << " steps";
  if (other.steps.back().param_hash == one.steps.back().param_hash)
    return ::testing::AssertionFailure() << "both end with the same weights";
  return ::testing::AssertionSuccess();
}

// Weights that differ show that the fault has happened, too.
TEST_P(RanksControls, EveryFaultIsSeen) {
  for (const std::string count : {"2", "4"}) {
    EXPECT_TRUE(same_trace(one, ranks("--ranks " + count)));
    for (const std::string& fault : GetParam().faults)
      EXPECT_TRUE(ends_elsewhere(one, ranks("--ranks " + count + " --fault " + fault)))
          << count << " " << fault;
  }
}

// The last bit of one number of a gradient is less than AdamW's first update can show.
TEST_P(RanksControls, OneBitIsSeen) {
  const std::string fault = " --fault corrupt:" + GetParam().sums;
  for (const std::string count : {"2", "4"})
    EXPECT_NE(ranks("--ranks " + count + fault).steps.at(0).grad_norm, one.steps.at(0).grad_norm)
        << count;
}

// A fault that does not happen changes nothing: what is seen above is the fault.
TEST_P(RanksControls, AFaultThatNeverComesIsNotSeen) {
  EXPECT_TRUE(same_trace(one, ranks("--ranks 2 --fault skip:all_reduce:100000")));
  EXPECT_TRUE(same_trace(one, ranks("--ranks 1 --fault swap:broadcast:7")));
}

// Nor does it pass for a fault that nobody saw.
TEST_P(RanksControls, AFaultIsTold) {
  const auto told = [&](const std::string& flags) {
    return train(GetParam().chapter, common + "--layers 2 --steps 1 " + flags).err;
  };
  const std::string never = " never happened: ";
  for (const std::string count : {"1", "2"})
    EXPECT_EQ(told("--fault skip:all_reduce:100000 --ranks " + count)
                  .find("note: --fault skip:all_reduce:100000" + never),
              0)
        << count;
  EXPECT_EQ(told("--ranks 2 --fault skip:recv:100000")
                .find("note: --fault skip:recv:100000" + never + "no rank received more than "),
            0);
  // One that comes is told, too, whether it is seen or not.
  const std::string fault = "--fault skip:" + GetParam().sums;
  EXPECT_EQ(told("--ranks 2 " + fault).find("note: " + fault + " happened: a group of ranks had "),
            0);
  EXPECT_EQ(told("--ranks 2"), "");
}

TEST_P(RanksControls, LossesThatAreNotGatheredAreSeen) {
  const Trace lost = ranks("--ranks 4 --fault skip:" + GetParam().losses);
  EXPECT_EQ(lost.steps.at(0).grad_norm, one.steps.at(0).grad_norm);
  EXPECT_NE(lost.steps.at(0).loss, one.steps.at(0).loss);
}

// The reordered tier: sums of four ranks in another order. Of two there is only one.
TEST_P(RanksControls, OtherOrdersDifferAndAreNear) {
  for (const std::string reduction : {"ring", "naive"}) {
    EXPECT_TRUE(same_trace(one, ranks("--ranks 2 --reduction " + reduction))) << reduction;
    const Trace other = ranks("--ranks 4 --reduction " + reduction);
    EXPECT_TRUE(different_trace(one, other)) << reduction;
    for (size_t i = 0; i < one.steps.size(); ++i) {
      const double a = std::strtod(one.steps[i].loss.c_str(), nullptr),
                   b = std::strtod(other.steps[i].loss.c_str(), nullptr);
      EXPECT_LE(std::abs(a - b), 0x1p-15 * a) << reduction << " step " << i;
    }
  }
}

// Of three the naive order is the tree's, and the ring's is not.
TEST_P(RanksControls, NaiveOfThreeIsTheTree) {
  const Trace alone = trace("06_checkpointing", "--batch 12");
  const std::string three = "--batch 12 --ranks 3 --reduction ";
  EXPECT_TRUE(same_trace(alone, trace(GetParam().chapter, three + "naive")));
  EXPECT_TRUE(different_trace(alone, trace(GetParam().chapter, three + "ring")));
}

TEST_P(RanksControls, OtherRunsDiffer) {
  for (const std::string flags : {"--seed 2", "--lr 0.0010001",
                                  "--micro-batch 1 --accumulate "
                                  "running"})
    EXPECT_TRUE(different_trace(one, ranks("--ranks 2 " + flags))) << flags;
}

}  // namespace
}  // namespace ladder::test
