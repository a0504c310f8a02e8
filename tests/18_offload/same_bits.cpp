// 18_offload: whatever waits in files, the bits are those of 06, which keeps everything in memory.
// What inputs that are not brought back do to the gradients: tests/06_checkpointing/gradients.cpp.
#include <fmt/format.h>

#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

const std::vector<std::string> kWays = {
    "--offload optimizer",
    "--offload optimizer,weights --ranks 2",
    "--recompute full --offload inputs",
    "--recompute every:2 --offload inputs --ranks 2",
    "--recompute every:3 --offload inputs,weights",
    "--recompute sqrt --offload inputs,optimizer,weights --ranks 4",
    "--recompute selective --offload inputs,optimizer"};

/// On a backend, 5 layers.
class OffloadBits : public SameTrace, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Offload, OffloadBits, ::testing::Values("cpu", "ref"),
                         [](const auto& backend) { return backend.param; });

TEST_P(OffloadBits, EveryWayIsChapter06) {
  const std::string flags =
      "--layers 5 --channels 32 --heads 4 --batch 8 --micro-batch 2 --clip 1 --backend " +
      GetParam() + " ";
  const Trace kept = trace("06_checkpointing", flags, {0, 3});
  for (const std::string& way : kWays)
    EXPECT_TRUE(same_trace(kept, trace("18_offload", flags + way, {0, 3}))) << way;
}

class OffloadMore : public SameTraceSmall {};

TEST_F(OffloadMore, ComposesWithWhatCameBefore) {
  for (const char* flags :
       {"--precision bf16 --micro-batch 1 --batch 8", "--precision fp16 --loss-scale 1024",
        "--optimizer adamw8bit --micro-batch 2", "--eval-every 1 --sample 4"})
    for (const char* way : {"--recompute full --offload inputs,optimizer,weights",
                            "--prefetch 0 --recompute every:1 --offload inputs --ranks 4",
                            "--reshard-after-forward 0 --offload weights --ranks 2"})
      EXPECT_TRUE(same_trace(trace("06_checkpointing", flags),
                             trace("18_offload", fmt::format("{} {}", flags, way))))
          << flags << " " << way;
}

TEST_F(OffloadMore, Resume) {
  for (const std::string flags :
       {"--recompute full --offload inputs,optimizer,weights --ranks 2", "--offload optimizer"})
    EXPECT_TRUE(same_trace(trace("18_offload", flags), interrupted("18_offload", flags))) << flags;
}

TEST_F(OffloadMore, AResumeMayChangeWhatWaits) {
  const Trace first = trace("10_zero3", "--ranks 2 --save half", {0, kHalf});
  EXPECT_TRUE(same_trace(
      trace("06_checkpointing", ""),
      joined(first, trace("18_offload", "--load half --recompute full --offload inputs,optimizer",
                          {kHalf, kSteps}))));
}

TEST_F(OffloadMore, NegativeControlAnotherSeedDiffers) {
  const std::string flags = "--recompute full --offload inputs";
  EXPECT_TRUE(
      different_trace(trace("18_offload", flags), trace("18_offload", flags + " --seed 2")));
}

// A gather of weights that are not brought is seen, wherever they lie.
TEST_F(OffloadMore, NegativeControlAFaultDiffers) {
  const std::string flags = "--ranks 2 --offload optimizer,weights";
  EXPECT_TRUE(different_trace(trace("18_offload", flags),
                              trace("18_offload", flags + " --fault skip:all_gather:1")));
}

}  // namespace
}  // namespace ladder::test
