// 11_tensor_parallel with processes as ranks, under mpirun.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class TensorParallelMpi : public SameTraceSmall {};

TEST_F(TensorParallelMpi, HasTheBitsOfOneRank) {
  const Trace one = trace("06_checkpointing", "--batch 4 --clip 1");
  const auto shared = [&](int ranks, const std::string& flags) {
    return trace(under_mpirun("11_tensor_parallel", ranks), "--batch 4 --clip 1 " + flags);
  };
  for (const int ranks : {2, 4})
    for (const std::string flags : {"", "--sequence-parallel"})
      EXPECT_TRUE(same_trace(one, shared(ranks, flags))) << ranks << flags;
  for (const std::string fault : {"skip:all_reduce:3", "skip:reduce_scatter:3 --sequence-parallel"})
    EXPECT_TRUE(different_trace(one, shared(2, "--fault " + fault))) << fault;
}

// The user gave no --ranks.
TEST_F(TensorParallelMpi, AnotherDegreeThanThatOfMpirunIsRefused) {
  const Ended ended = run(under_mpirun("11_tensor_parallel", 4), small_run("--tp 2"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(
      ended.err.find("--tp 2 with 4 ranks: all of them share each layer; legal are --tp 4, or 0"),
      std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace ladder::test
