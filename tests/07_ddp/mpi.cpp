// Processes as ranks, under mpirun: what is refused, once. Their bits, bytes and files:
// ../layouts.txt.
#include "tests/common/programs.h"

namespace ladder::test {
namespace {

/// How often `part` stands in `text`.
int64_t times(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

using MpiRanks = Programs;

// mpirun adds words of its own to the one line.
TEST_F(MpiRanks, AnImpossibleLayoutIsRefused) {
  write("trace.jsonl", "of an earlier run\n");
  const auto before = files();
  const Ended ended =
      run(under_mpirun("07_ddp", 4), small_run("--batch 6 --trace trace.jsonl --save x"));
  EXPECT_EQ(ended.status, 2) << ended.err;
  EXPECT_NE(ended.err.find("a batch of 6 does not suit 4 ranks; legal are 4 times 1, 2, 4"),
            std::string::npos)
      << ended.err;
  EXPECT_EQ(times(ended.err, "error: rank "), 1) << ended.err;
  EXPECT_EQ(files(), before);
}

// What all processes find out by themselves one of them says.
TEST_F(MpiRanks, OptionsAreRefusedOnce) {
  for (const std::string flags : {"--batch 0", "--nothing 1"}) {
    const Ended ended = run(under_mpirun("07_ddp", 4), small_run(flags));
    EXPECT_EQ(ended.status, 2) << ended.err;
    EXPECT_EQ(times(ended.err, "error: "), 1) << ended.err;
  }
  EXPECT_EQ(times(run(under_mpirun("07_ddp", 4), {"--help"}).out, "Usage:"), 1);
}

TEST_F(MpiRanks, APlanIsPrintedOnce) {
  const std::vector<std::string> flags = words("--plan-only --model nano --tp 2");
  const std::string alone = run("13_3d_parallel", flags).out;
  EXPECT_TRUE(alone.starts_with("mesh ")) << alone;
  EXPECT_EQ(run(under_mpirun("13_3d_parallel", 2), flags).out, alone);
}

// The user gave no --ranks.
TEST_F(MpiRanks, DegreesThatDoNotSuitTheProcessesAreRefused) {
  const std::string llama = "--model llama-nano --seq-len 512 --micro-batch 1 ";
  for (const auto& [of, processes, flags, says] :
       std::vector<std::tuple<std::string, int, std::string, std::string>>{
           {"11_tensor_parallel", 4, "--tp 2",
            "--tp 2 with 4 ranks: all of them split each layer; legal are --tp 4, or 0"},
           {"12_pipeline_parallel", 4, "--pp 2",
            "--pp 2 with 4 ranks: each of them is a stage; legal are --pp 4, or 0"},
           {"13_3d_parallel", 4, "--batch 8 --micro-batch 1 --tp 2 --dp 2 --pp 2",
            "--tp 2 x --dp 2 x --pp 2 are 8 ranks, not 4"},
           {"13_3d_parallel", 4, "--batch 8 --micro-batch 1 --ranks 2",
            "--ranks 2, but mpirun has started 4; legal: 4, or no --ranks"},
           {"20_context_parallel", 2, llama + "--cp 4",
            "--cp 4 with 2 ranks; legal are multiples of 4 ranks, or --cp 1, 2"},
           {"22_expert_parallel", 2, "--model moe-nano --ep 4",
            "--ep 4 with 2 ranks; legal are multiples of 4 ranks, or --ep 1, 2"}}) {
    expect_refused(under_mpirun(of, processes), flags, says);
  }
}

}  // namespace
}  // namespace ladder::test
