// 11_tensor_parallel with processes as ranks, under mpirun.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class TensorParallelMpi : public SameTraceSmall {};

TEST_F(TensorParallelMpi, HasTheBitsOfOneRank) {
  const Trace one = trace("06_checkpointing", "--batch 4 --clip 1");
  for (const int ranks : {2, 4})
    EXPECT_TRUE(
        same_trace(one, trace(under_mpirun("11_tensor_parallel", ranks), "--batch 4 --clip 1")))
        << ranks;
  EXPECT_TRUE(different_trace(one, trace(under_mpirun("11_tensor_parallel", 2),
                                         "--batch 4 --clip 1 --fault skip:all_reduce:3")));
}

}  // namespace
}  // namespace ladder::test
