// --head-chunk: logits of a few sequences at a time change no bit. What a sum in another order
// does: head_grad.cpp.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::string k17 = "17_head_chunks";

class ChunkedHead : public SameTraceSmall {};

TEST_F(ChunkedHead, EveryChunkIsChapter06) {
  // 16 sequences: chunks 1, 2, 4 and 8 take one to four buffers; micro-batches that are added to
  // others; twelve sequences, whose last chunk of 8 is half empty.
  for (const std::string flags :
       {"--batch 16", "--batch 16 --micro-batch 8", "--batch 16 --micro-batch 4 --precision bf16",
        "--batch 12 --precision fp16", "--batch 8 --backend ref"}) {
    const Trace whole = trace("06_checkpointing", flags);
    for (const std::string chunk : {"1", "2", "4", "8", "32"})
      EXPECT_TRUE(same_trace(whole, trace(k17, flags + " --head-chunk " + chunk)))
          << flags << " in chunks of " << chunk;
  }
}

TEST_F(ChunkedHead, WithWhatNeedsMoreThanTheGradient) {
  const std::string flags = "--batch 8 --micro-batch 4 --clip 0.1 --recompute selective ";
  const Trace whole = trace("04_clipping", "--batch 8 --micro-batch 4 --clip 0.1");
  EXPECT_TRUE(same_trace(whole, trace(k17, flags + "--head-chunk 1 --eval-every 1 --sample 3")));
}

}  // namespace
}  // namespace ladder::test
