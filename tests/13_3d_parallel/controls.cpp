// Negative controls of chapter 13: what each axis exchanges is needed. Each group of ranks counts
// its collectives, so that one number may name one of tp, one of dp, one of pp and one of all
// ranks: in other steps, or of other operations.
#include <fmt/format.h>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class MeshControls : public SameTrace {
 protected:
  Trace one() const { return trace("06_checkpointing", "--layers 4 --batch 8"); }
  Trace mesh(const std::string& flags) const {
    return trace("13_3d_parallel",
                 "--layers 4 --batch 8 --micro-batch 2 --tp 2 --dp 2 --pp 2 " + flags);
  }
};

/// Success if `other` has all its steps and ends with other weights than `one`.
::testing::AssertionResult ends_elsewhere(const Trace& one, const Trace& other) {
  if (other.steps.size() != one.steps.size())
    return ::testing::AssertionFailure() << other.steps.size() << " steps";
  if (other.steps.back().param_hash == one.steps.back().param_hash)
    return ::testing::AssertionFailure() << "both end with the same weights";
  return ::testing::AssertionSuccess();
}

// tp: sums inside the blocks of a micro-batch. In the first step dp has one all-reduce, of targets,
// and all ranks have two, of the norm and of the hash.
TEST_F(MeshControls, SumsOfTensorRanks) {
  const Trace alone = one();
  for (const std::string fault : {"skip:all_reduce:2", "skip:all_reduce:4", "corrupt:all_reduce:3",
                                  "swap:all_reduce:2", "twice:all_reduce:5"})
    EXPECT_NE(mesh("--fault " + fault).steps.at(0).grad_norm, alone.steps.at(0).grad_norm) << fault;
  // As many reduce-scatters and all-gathers dp does not have in the whole run.
  for (const std::string fault : {"skip:reduce_scatter:30", "skip:all_gather:50"})
    EXPECT_TRUE(ends_elsewhere(alone, mesh("--sequence-parallel --fault " + fault))) << fault;
}

// dp: of each section the sum of gradients, and the weights that come back; and the targets of all.
TEST_F(MeshControls, GradientsAndWeightsOfShares) {
  const Trace alone = one();
  for (const std::string fault :
       {"skip:reduce_scatter:0", "skip:reduce_scatter:2", "twice:reduce_scatter:1",
        "swap:reduce_scatter:1", "skip:all_gather:0", "skip:all_gather:4"})
    EXPECT_TRUE(ends_elsewhere(alone, mesh("--fault " + fault))) << fault;
  // With one tensor rank all others that are number 0 are of the norm, which nothing here clips by.
  EXPECT_TRUE(ends_elsewhere(alone, trace("13_3d_parallel",
                                          "--layers 4 --batch 8 --micro-batch 2 --dp 2 --pp 2 "
                                          "--fault skip:all_reduce:0")));
}

// pp: messages between stages, and the losses that only the last has.
TEST_F(MeshControls, MessagesAndLossesOfStages) {
  const Trace alone = one();
  for (const std::string fault : {"skip:recv:1", "swap:recv:1"})
    EXPECT_TRUE(ends_elsewhere(alone, mesh("--fault " + fault))) << fault;
  const Trace losses = mesh("--fault skip:broadcast:0");
  EXPECT_NE(losses.steps.at(0).loss, alone.steps.at(0).loss);
  EXPECT_EQ(losses.steps.at(0).grad_norm, alone.steps.at(0).grad_norm);
}

// pp: nothing is lost on the way, but a stage leaves one micro-batch out of its gradient. The
// mutant is made as that of chapter 12.
TEST_F(MeshControls, WeightGradientsOfStages) {
  const Trace alone = one();
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    const Trace without = trace("13_mutant",
                                "--layers 4 --batch 8 --micro-batch 2 --tp 2 --dp 2 "
                                "--pp 2 --pipeline " +
                                    schedule);
    EXPECT_EQ(without.steps.at(0).loss, alone.steps.at(0).loss) << schedule;
    EXPECT_TRUE(ends_elsewhere(alone, without)) << schedule;
  }
}

// Stages make different numbers of sums: the last one of a step for some is not for others.
TEST_F(MeshControls, AFaultStopsNoRun) {
  for (const int nth : {33, 35, 37, 39, 41})
    train("13_3d_parallel",
          fmt::format("--tp 2 --dp 2 --pp 2 --batch 8 --micro-batch 2 --steps 1 --fault "
                      "skip:all_reduce:{}",
                      nth));
}

// A fault that does not happen changes nothing: what is seen above is the fault.
TEST_F(MeshControls, AFaultThatNeverComesIsNotSeen) {
  const Trace alone = one();
  for (const std::string fault : {"skip:all_reduce:100000", "skip:reduce_scatter:100000",
                                  "skip:broadcast:100000", "skip:recv:100000"})
    EXPECT_TRUE(same_trace(alone, mesh("--fault " + fault))) << fault;
}

// And a comparison sees what is another run: a seed, a rate, an order of sums over the shares.
TEST_F(MeshControls, OtherRunsDiffer) {
  const Trace alone = one();
  for (const std::string flags : {"--seed 2", "--lr 0.0010001", "--reduction ring --dp 4 --tp 1"})
    EXPECT_TRUE(
        different_trace(alone, trace("13_3d_parallel", "--layers 4 --batch 8 --pp 2 " + flags)))
        << flags;
}

}  // namespace
}  // namespace ladder::test
