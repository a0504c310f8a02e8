// --backend cuda-on-cpu, what cuda_runs.txt cannot say of whole runs: other orders of threads, a
// checkpoint of another backend, bytes, and what is refused.
#include <cstdlib>

#include "tests/common/memory.h"
#include "tests/common/ranks.h"
#include "tests/common/refusal.h"
#include "tests/common/same_trace.h"

namespace ladder::test {
namespace {

// A thread at a time is slow: small shapes, and little to validate on.
const std::string kShort = " --layers 2 --channels 32 --heads 4 --seq-len 9 --batch 4 ";
constexpr size_t kTextBytes = 400;

class CudaOnCpu : public SameTrace {
 protected:
  CudaOnCpu() { write("text.txt", read("text.txt").substr(0, kTextBytes)); }
};

TEST_F(CudaOnCpu, TheOrderOfThreadsChangesNothing) {
  const std::string flags = kShort + "--backend cuda-on-cpu --precision bf16";
  const Trace one = trace("06_checkpointing", flags, {0, 2});
  setenv("LADDER_ON_CPU_SEED", "12345", /*overwrite=*/1);
  const Trace other = trace("06_checkpointing", flags, {0, 2});
  unsetenv("LADDER_ON_CPU_SEED");
  EXPECT_TRUE(same_trace(one, other));
}

// What one backend saves another loads: the files know of no device.
TEST_F(CudaOnCpu, GoesOnWhereTheCpuStopped) {
  const Trace first = trace("02_adamw", kShort + "--save half", {0, kHalf});
  const Trace rest =
      trace("02_adamw", kShort + "--load half --backend cuda-on-cpu", {kHalf, kSteps});
  EXPECT_TRUE(near(joined(first, rest), trace("02_adamw", kShort), 0x1p-15));
}

/// Padding changes no text, and its price is counted. That it is needed shows on a chip alone: here
/// a product has one order of summation whatever its shape, so texts would be the same without it.
TEST_F(CudaOnCpu, FixedRowsPadProducts) {
  train("06_checkpointing", kShort + "--steps 1 --save m");
  write("p.jsonl", "{\"prompt\":\"the\"}\n{\"prompt\":\"a\"}\n{\"prompt\":\"\"}\n");
  const auto lines = [&](const std::string& flags) {
    const Ended end =
        run("31_generate", words("--load m --backend cuda-on-cpu --prompts p.jsonl --out "
                                 "o.jsonl --report r.json --max-tokens 3 " +
                                 flags));
    EXPECT_EQ(end.status, 0) << end.err;
    return read("o.jsonl");
  };
  const std::string want = lines("--batch 3");
  for (const char* flags : {"--batch 3", "--batch 1", "--batch 2 --prefill-tokens 1"})
    EXPECT_EQ(lines(flags + std::string(" --fixed-rows 6")), want) << flags;
  const auto report = nlohmann::json::parse(read("r.json"));
  const double rows = report["prefilled"].get<double>() + report["drawn"].get<double>() - 3;
  EXPECT_EQ(report["padded"], 6 * report["passes"].get<double>() / rows);
  const Ended refused =
      run("31_generate", words("--load m --backend cuda-on-cpu --prompt a --batch 6 "
                               "--fixed-rows 6"));
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("--fixed-rows must be more than 6"), std::string::npos) << refused.err;
}

TEST_F(CudaOnCpu, BytesAreAsPredicted) {
  const auto expect_predicted = [&](const std::string& chapter, const std::string& flags) {
    EXPECT_TRUE(as_predicted(report(chapter, kShort + "--steps 1 --backend cuda-on-cpu " + flags)))
        << chapter << flags;
  };
  expect_predicted("16_fp8", "--precision fp8 --recompute full --clip 1");
  expect_predicted("32_optimizers", "--optimizer adamw8bit");
  expect_predicted("02_adamw", "--sample 3");
  expect_predicted("18_offload", "--recompute full --offload inputs");
  for (const std::string& chapter : kDataParallel)
    expect_predicted(chapter, "--ranks 2 --precision bf16");
}

TEST_F(CudaOnCpu, ASmallDeviceTellsWhatTakesLess) {
  ::setenv("LADDER_ON_CPU_MEMORY", "100000", 1);
  expect_refused("01_sgd", "--backend cuda-on-cpu --steps 0", "a smaller --batch");
  ::unsetenv("LADDER_ON_CPU_MEMORY");
}

class BadOnDevice : public Refusals {};
INSTANTIATE_TEST_SUITE_P(CudaOnCpu, BadOnDevice, ::testing::Values("18_offload"), chapter_name);

TEST_P(BadOnDevice, Flags) {
  expect_refused(BadInput{"--backend cuda-on-cpu --channels 516 --heads 4",
                          "--heads 4 of --channels 516 have 129 channels each; with --backend "
                          "cuda-on-cpu at most 128 are legal"});
  expect_refused(BadInput{"--backend cuda-on-cpu --offload weights", "legal are ref and cpu"});
}

}  // namespace
}  // namespace ladder::test
