// --head-chunk: the bytes of fewer logits, and of the sums that the chunks take.
#include "tests/common/memory.h"

#include "tests/common/programs.h"

namespace ladder::test {
namespace {

class ChunkedHeadMemory : public MemoryRuns {};

TEST_F(ChunkedHeadMemory, LogitsShrinkAndSumsGrow) {
  plan_only();
  constexpr int64_t T = 16, C = kChannels, Vp = 256;
  const auto whole = report("17_head_chunks", "--steps 1 --batch 16");
  for (const auto& [chunk, spare] : {std::pair{8, 0}, {4, 1}, {2, 2}, {1, 3}}) {
    const auto got =
        report("17_head_chunks", fmt::format("--steps 1 --batch 16 --head-chunk {}", chunk));
    EXPECT_EQ(predicted(whole, Mem::Activation) - predicted(got, Mem::Activation),
              4 * (16 - chunk) * T * Vp)
        << chunk;
    EXPECT_EQ(predicted(got, Mem::Workspace) - predicted(whole, Mem::Workspace), 4 * spare * Vp * C)
        << chunk;
  }
}

}  // namespace
}  // namespace ladder::test
