// 07 to 10 and 18 once more, short enough for ThreadSanitizer: ranks are threads, and each has
// another one that communicates beside it.
#include "tests/common/ranks.h"

namespace ladder::test {
namespace {

class RanksAsThreads : public SameTrace, public ::testing::WithParamInterface<DataParallel> {
 protected:
  RanksAsThreads() { write("text.txt", read("text.txt").substr(0, 400)); }

  Trace small(const std::string& flags) const {
    return trace(GetParam().chapter,
                 flags + " --layers 2 --channels 32 --heads 2 --seq-len 5 --batch 8 --clip 1 ",
                 {0, 2});
  }
};
INSTANTIATE_TEST_SUITE_P(DataParallel, RanksAsThreads, ::testing::ValuesIn(data_parallel()),
                         row_name);

TEST_P(RanksAsThreads, ShareNothingUnguarded) {
  const Trace one = small("");
  for (const std::string flags :
       {"--ranks 2 --micro-batch 2 --bucket-mb 0 --eval-every 1 --timeline timeline.json",
        "--ranks 4 --bucket-mb 0 --report report.json --save saved"})
    EXPECT_TRUE(same_trace(one, small(flags))) << flags;
}

TEST_P(RanksAsThreads, InEveryWay) {
  const Trace one = small("");
  for (const std::string& way : GetParam().ways)
    EXPECT_TRUE(same_trace(one, small("--ranks 2 " + way))) << way;
}

TEST_P(RanksAsThreads, InNarrowPrecision) {
  const Trace one = small("--precision bf16 --recompute full");
  EXPECT_TRUE(same_trace(
      one, small("--precision bf16 --recompute full --ranks 2 --bucket-mb 0 --micro-batch 1")));
}

}  // namespace
}  // namespace ladder::test
