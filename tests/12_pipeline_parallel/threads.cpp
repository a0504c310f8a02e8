// 12_pipeline_parallel once more, short enough for ThreadSanitizer: stages are threads.
#include "chapters/12_pipeline_parallel/pipeline.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class StagesAsThreads : public SameTrace {
 protected:
  StagesAsThreads() { write("text.txt", read("text.txt").substr(0, 400)); }

  Trace small(const std::string& flags) const {
    return trace(
        "12_pipeline_parallel",
        "--layers 4 --channels 32 --heads 2 --seq-len 5 --batch 8 --micro-batch 2 " + flags,
        {0, 2});
  }
};

TEST_F(StagesAsThreads, ShareNothingUnguarded) {
  const Trace one = small("");
  for (const char* schedule : kNames<PipelineKind>)
    EXPECT_TRUE(same_trace(one, small(std::string("--pp 2 --pipeline ") + schedule))) << schedule;
  EXPECT_TRUE(same_trace(one, small("--pp 4 --eval-every 1 --sample 2 --report report.json --save "
                                    "saved --timeline timeline.json --recompute full")));
}

}  // namespace
}  // namespace ladder::test
