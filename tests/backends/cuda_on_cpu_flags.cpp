// --backend cuda-on-cpu and other flags: what it refuses, and what goes with it.
#include <cstdlib>

#include "tests/common/memory.h"
#include "tests/common/refusal.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

class BadOnDevice : public Refusals {};
INSTANTIATE_TEST_SUITE_P(CudaOnCpu, BadOnDevice, ::testing::Values("18_offload"), chapter_name);

TEST_P(BadOnDevice, Flags) {
  expect_refused(BadInput{"--backend cuda-on-cpu --channels 516 --heads 4",
                          "--heads 4 of --channels 516 have 129 channels each; with --backend "
                          "cuda-on-cpu at most 128 are legal"});
  expect_refused(BadInput{"--backend cuda-on-cpu --offload weights", "legal are ref and cpu"});
}

class OffloadOnDevice : public SameTraceSmall {};

TEST_F(OffloadOnDevice, InputsHaveTheSameBits) {
  const std::string flags = "--backend cuda-on-cpu --seq-len 8 --batch 2 --micro-batch 1 ";
  EXPECT_TRUE(same_trace(trace("06_checkpointing", flags, {0, 2}),
                         trace("18_offload", flags + "--recompute full --offload inputs", {0, 2})));
}

class OffloadBytesOnDevice : public MemoryRuns {};

TEST_F(OffloadBytesOnDevice, AreAsPredicted) {
  const auto got = report("18_offload",
                          "--steps 1 --layers 2 --recompute full --offload inputs "
                          "--backend cuda-on-cpu");
  EXPECT_TRUE(as_predicted(got));
  const auto& offload = got["extra"]["offload"];
  for (const char* what : {"inputs", "moved"})
    EXPECT_EQ(offload[what]["predicted"], offload[what]["measured"]) << what;
}

class SmallDevice : public Programs {};

TEST_F(SmallDevice, TellsWhatTakesLess) {
  ::setenv("LADDER_ON_CPU_MEMORY", "100000", 1);
  const Ended ended = run("01_sgd", small_run("--backend cuda-on-cpu --steps 0"));
  ::unsetenv("LADDER_ON_CPU_MEMORY");
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("a smaller --batch"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.out, "");
}

}  // namespace
}  // namespace ladder::test
