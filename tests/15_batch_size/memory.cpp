// 15_batch_size: memory as its formulas say: a ramp's small batches use the full one's buffers.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class BatchSizeMemory : public MemoryRuns {};

TEST_F(BatchSizeMemory, IsAsPredicted) {
  for (const std::string flags :
       {"", "--batch 8 --micro-batch 2 --noise-scale", "--batch-ramp 2:1,4:2 --micro-batch 2",
        "--ranks 2 --batch 8 --batch-ramp 2:1 --noise-scale --sample 3 --eval-every 1"})
    EXPECT_TRUE(as_predicted(report("15_batch_size", flags))) << flags;
}

TEST_F(BatchSizeMemory, IsThatOfTheFullBatch) {
  EXPECT_EQ(report("15_batch_size", "--batch-ramp 1:1,3:2")["memory"],
            report("07_ddp", "")["memory"]);
  // Also of a run that ends inside the ramp.
  EXPECT_EQ(report("15_batch_size", "--batch-ramp 1:100")["memory"],
            report("07_ddp", "")["memory"]);
}

}  // namespace
}  // namespace ladder::test
