// Negative controls of 22_expert_parallel: what is lost on the way must be seen.
#include "tests/22_expert_parallel/expert_runs.h"

namespace ladder::test {
namespace {

class ExpertControls : public ExpertRuns {
 protected:
  const std::string flags = "--experts-per-token 3 ";
  const Trace alone = one(flags, {0, 1});

  bool is_seen(const std::string& fault) const {
    const Trace faulty = shared(flags + "--ep 2 --micro-batch 8 --fault " + fault, {0, 1});
    return faulty.steps.size() == 1 &&
           faulty.steps.back().param_hash != alone.steps.back().param_hash;
  }
};

// A block takes five of them forward: numbers of rows, choices, weights, rows, and rows that come
// back; and three backward: gradients of rows, and back those of weights and of rows. Without
// numbers and choices ranks would not agree on what travels.
TEST_F(ExpertControls, EveryExchangeOfRows) {
  for (const int nth : {2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15})
    EXPECT_TRUE(is_seen(fmt::format("skip:all_to_all:{}", nth))) << nth;
  for (const int nth : {3, 4, 10}) EXPECT_TRUE(is_seen(fmt::format("swap:all_to_all:{}", nth)));
}

// The first is the head's, the second that of the last block's experts, which one rank has.
TEST_F(ExpertControls, EverySumOfGradients) {
  for (const std::string fault : {"skip:reduce_scatter:0", "twice:reduce_scatter:1"})
    EXPECT_TRUE(is_seen(fault)) << fault;
}

}  // namespace
}  // namespace ladder::test
