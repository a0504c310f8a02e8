// 20_context_parallel once more, short enough for ThreadSanitizer: ranks are threads, and each ring
// has another one that sends and receives beside it.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class ContextAsThreads : public SameTrace {
 protected:
  ContextAsThreads() { write("text.txt", read("text.txt").substr(0, 1500)); }

  Trace small(const std::string& flags) const {
    return trace("20_context_parallel",
                 "--model llama-nano --layers 2 --channels 16 --heads 4 --seq-len 128 --batch 2 "
                 "--micro-batch 1 --clip 1 " +
                     flags,
                 {0, 2});
  }
};

TEST_F(ContextAsThreads, ShareNothingUnguarded) {
  const Trace one = small("");
  const std::string four = "--cp 2 --ranks 4 --context ";
  for (const std::string flags :
       {"ring --eval-every 1 --timeline timeline.json", "ulysses --recompute full",
        "gather --report report.json --save saved --sample 2"})
    EXPECT_TRUE(same_trace(one, small(four + flags))) << flags;
}

}  // namespace
}  // namespace ladder::test
