// Bad input that chapter 10 refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadZero3 : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadZero3, ::testing::Values("10_zero3"), chapter_name);

TEST_P(BadZero3, Flags) {
  expect_refused({{"--prefetch 2", "--prefetch: 2 not in {0,1}"},
                  {"--reshard-after-forward yes", "--reshard-after-forward"},
                  {"--offload everything", "{none,optimizer,all}"},
                  {"--offload all --backend cuda-on-cpu", "legal are ref and cpu"}});
}

// Ranks alone and together: what is wrong is the folder, and not --batch.
TEST_P(BadZero3, OffloadWithoutItsFolder) {
  for (const std::string ranks : {"1", "2"})
    for (const auto& [launcher, says] :
         {std::pair{std::vector<std::string>{"env", "TMPDIR=/nowhere"},
                    " bytes in /nowhere: No such file or directory"},
          {{"bash", "-c", "export TMPDIR=/tmp; trap '' XFSZ; ulimit -f 16; exec \"$@\"", "bash"},
           " bytes in /tmp: File too large"}}) {
      const Ended ended =
          run(Program(GetParam(), launcher), small_run("--offload optimizer --ranks " + ranks));
      EXPECT_EQ(ended.status, 2) << ended.err;
      EXPECT_NE(ended.err.find(std::string(says) + "; TMPDIR can name another folder\n"),
                std::string::npos)
          << ended.err;
      EXPECT_NE(ended.err.find("no temporary file of "), std::string::npos) << ended.err;
      EXPECT_EQ(ended.err.find('\n'), ended.err.size() - 1) << "not one line";
      EXPECT_EQ(ended.err.find("--batch"), std::string::npos) << ended.err;
    }
}

}  // namespace
}  // namespace ladder::test
