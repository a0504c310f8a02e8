// 16_fp8 once more, short enough for ThreadSanitizer: ranks are threads, and each has another one
// that communicates beside it.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class Fp8Threads : public SameTrace {
 protected:
  Fp8Threads() { write("text.txt", read("text.txt").substr(0, 400)); }

  Trace small(const std::string& flags) const {
    return trace("16_fp8",
                 "--precision fp8 --recompute full --layers 2 --channels 32 --heads 2 "
                 "--seq-len 5 --batch 8 --clip 1 " +
                     flags,
                 {0, 2});
  }
};

TEST_F(Fp8Threads, ShareNothingUnguarded) {
  EXPECT_TRUE(same_trace(small(""), small("--ranks 2 --bucket-mb 0 --micro-batch 1")));
}

}  // namespace
}  // namespace ladder::test
