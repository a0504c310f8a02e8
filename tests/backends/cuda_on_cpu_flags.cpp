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

/// A device that has as much memory as a test says.
class SmallDevice : public MemoryRuns {
 protected:
  ~SmallDevice() override { has_all(); }

  static void has(int64_t bytes) {
    ::setenv("LADDER_ON_CPU_MEMORY", std::to_string(bytes).c_str(), 1);
  }
  static void has_all() { ::unsetenv("LADDER_ON_CPU_MEMORY"); }

  /// What all ranks of a run take.
  int64_t bytes(const std::string& chapter, const std::string& flags) const {
    int64_t sum = 0;
    const auto got = report(chapter, flags);
    for (size_t rank = 0; rank < got.at("memory").size(); ++rank)
      for (int mem = 0; mem < kMemCount; ++mem) sum += measured(got, static_cast<Mem>(mem), rank);
    return sum;
  }
};

TEST_F(SmallDevice, TheLargestBatchThatFitsIsNamed) {
  struct Case {
    std::string chapter, flags, flag;
    int most, more;  ///< the largest that shall fit, and the next
  };
  for (const auto& [chapter, flags, flag, most, more] :
       {Case{"01_sgd", "", "--batch", 11, 12},
        Case{"05_mixed_precision", "--batch 64", "--micro-batch", 8, 16},
        Case{"07_ddp", "--batch 64 --ranks 2", "--micro-batch", 8, 16}}) {
    const auto with = [&](int batch) {
      return fmt::format("--backend cuda-on-cpu --steps 0 {} {} {}", flags, flag, batch);
    };
    has_all();
    has((bytes(chapter, with(most)) + bytes(chapter, with(more))) / 2);
    const Ended ended = run(chapter, small_run(with(64) + " --channels 64"));
    EXPECT_EQ(ended.status, 2) << chapter;
    EXPECT_TRUE(ended.err.ends_with(fmt::format(" takes less: {} {} fits\n", flag, most)))
        << chapter << ": " << ended.err;
    EXPECT_EQ(ended.out, "") << chapter;
  }
}

}  // namespace
}  // namespace ladder::test
