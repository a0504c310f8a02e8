// 06_checkpointing: the text that each policy samples. The bits of its runs: equal_runs.txt.
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class CheckpointMore : public SameTraceSmall {};

TEST_F(CheckpointMore, SamplesTheSameText) {
  const auto text = [&](const std::string& policy) {
    const std::string out =
        train("06_checkpointing", "--sample 40 --layers 3 --recompute " + policy).out;
    const size_t begin = out.find("---- sample");
    EXPECT_NE(begin, std::string::npos) << out;
    return begin == std::string::npos ? policy : out.substr(begin);
  };
  const std::string kept = text("none");
  EXPECT_GT(kept.size(), 40U);
  for (const std::string policy : {"every:2", "full", "selective"})
    EXPECT_EQ(text(policy), kept) << policy;
}

}  // namespace
}  // namespace ladder::test
