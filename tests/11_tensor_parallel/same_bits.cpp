// 11_tensor_parallel: what its sums are needed for, and 16 bits. Layouts that have the bits of 06:
// equal_runs.txt.
#include <tuple>

#include <fmt/format.h>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class TensorParallelMore : public SameTraceSmall {
 protected:
  Trace one(const std::string& flags) const { return trace("06_checkpointing", flags); }
  Trace shared(const std::string& flags) const { return trace("11_tensor_parallel", flags); }
};

// In 16 bits each rank rounds its part of a sum: another run, close by.
TEST_F(TensorParallelMore, NarrowPrecisionsStayClose) {
  for (const std::string flags : {"--precision bf16", "--precision fp16 --loss-scale 1024"}) {
    EXPECT_TRUE(same_trace(one(flags), shared(flags + " --tp 1")));
    const Trace a = one(flags), b = shared(flags + " --tp 4");
    ASSERT_TRUE(is_whole(b)) << flags;
    EXPECT_TRUE(same_trace(b, shared(flags + " --tp 4 --sequence-parallel"))) << flags;
    for (size_t i = 0; i < a.steps.size(); ++i)
      EXPECT_NEAR(std::stod(a.steps[i].loss), std::stod(b.steps[i].loss), 0.02) << flags;
  }
}

// Each sum of the first step, left out: the embedding, g of attention and of the MLP twice, of the
// softmax the maximum, the sum and the logit of the target, f of the head, f of the MLP and of
// attention twice, and the norm. The target's logit is in the loss alone, and letters are not in
// the first quarter of the vocabulary, which the rank has that writes the trace.
TEST_F(TensorParallelMore, NegativeControlEverySumIsNeeded) {
  const Trace alone = one("--batch 4"), clipped = one("--batch 4 --clip 0.1");
  constexpr int kTarget = 7;
  for (int nth = 0; nth <= 13; ++nth) {
    const Trace lost =
        shared(fmt::format("--batch 4 --clip 0.1 --tp 4 --fault skip:all_reduce:{}", nth));
    if (nth == kTarget)
      EXPECT_NE(lost.steps.front().loss, clipped.steps.front().loss);
    else
      EXPECT_NE(lost.steps.back().param_hash, clipped.steps.back().param_hash) << nth;
  }
  EXPECT_TRUE(different_trace(alone, shared("--batch 4 --tp 2 --fault swap:all_reduce:1")));
  EXPECT_TRUE(same_trace(alone, shared("--batch 4 --tp 2 --fault skip:all_reduce:100000")));
}

// The same for what ranks exchange under sequence parallelism, of one sequence. Of two blocks are
// reduced and scattered: the embedding and four products; the gradients of what the head and four
// parts read. Forward gathers what four parts and the head read, 5. Backward gathers two sums of
// chunks of the last norm, for its gain and for its bias; then for each of four parts the gradient
// of its product, what it read, and the two sums of its norm; then the gradient of the embedding:
// 2 + 4 * 4 + 1. After the softmax's three all-reduces comes the norm of all gradients.
TEST_F(TensorParallelMore, NegativeControlEveryPartOfASequenceIsNeeded) {
  const std::string flags = "--batch 1 --clip 0.1";
  const Trace alone = one(flags);
  const auto with = [&](const std::string& fault) {
    return shared(flags + " --tp 4 --sequence-parallel --fault " + fault);
  };
  for (const auto& [operation, first, count] :
       {std::tuple{"reduce_scatter", 0, 10}, {"all_gather", 0, 24}, {"all_reduce", 3, 1}}) {
    for (int nth = first; nth < first + count; ++nth) {
      const Trace lost = with(fmt::format("skip:{}:{}", operation, nth));
      ASSERT_FALSE(lost.steps.empty()) << operation << nth;
      EXPECT_NE(lost.steps.back().param_hash, alone.steps.back().param_hash) << operation << nth;
    }
    EXPECT_TRUE(same_trace(alone, with(fmt::format("skip:{}:100000", operation)))) << operation;
  }
  for (const std::string slight :
       {"corrupt:reduce_scatter:1", "corrupt:all_gather:1", "swap:all_reduce:3"})
    EXPECT_TRUE(different_trace(alone, with(slight))) << slight;
}

}  // namespace
}  // namespace ladder::test
