// 13_3d_parallel once more, short enough for ThreadSanitizer: ranks are threads, and each has
// another one that reduces gradients beside the end of the pipeline.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class MeshAsThreads : public SameTrace {
 protected:
  MeshAsThreads() { write("text.txt", read("text.txt").substr(0, 400)); }

  Trace small(const std::string& flags) const {
    return trace("13_3d_parallel",
                 "--layers 4 --channels 32 --heads 2 --seq-len 6 --batch 4 --clip 1 " + flags,
                 {0, 2});
  }
};

TEST_F(MeshAsThreads, ShareNothingUnguarded) {
  const Trace one = small("");
  const std::string cube = "--tp 2 --dp 2 --pp 2 --micro-batch 1 --bucket-mb 0 ";
  for (const std::string flags :
       {"--sequence-parallel --eval-every 1 --timeline timeline.json", "--pipeline zb-h1",
        "--pipeline interleaved --recompute full --report report.json --save saved --sample 2"})
    EXPECT_TRUE(same_trace(one, small(cube + flags))) << flags;
}

}  // namespace
}  // namespace ladder::test
