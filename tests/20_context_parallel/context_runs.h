// What tests of chapter 20 run: models with 512 tokens, which 8 ranks can share.
#pragma once

#include <string>

#include "tests/common/same_trace.h"

namespace ladder::test {

constexpr Range kShort = {0, 2};

/// GPT-2's block, and LLaMA's with 8 heads in 4 groups.
inline const std::string kGpt =
    "--model gpt2-124m --vocab 256 --layers 2 --channels 32 --heads 8 --seq-len 512 ";
inline const std::string kLlama = "--model llama-nano --layers 2 --channels 32 --seq-len 512 ";

/// A SameTrace whose text is long enough to hold out a sequence of 512.
class ContextRuns : public SameTrace {
 protected:
  ContextRuns() { write("text.txt", read("text.txt") + read("text.txt").substr(0, 2000)); }

  /// Chapter 06 on one rank.
  Trace one(const std::string& flags, Range range = kShort) const {
    return trace("06_checkpointing", flags + " --clip 1", range);
  }
  Trace shared(const std::string& flags, Range range = kShort) const {
    return trace("20_context_parallel", flags + " --clip 1 --micro-batch 1", range);
  }
};

}  // namespace ladder::test
