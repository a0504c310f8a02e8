// Bad input that chapter 22 refuses.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class BadExpertParallel : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, BadExpertParallel, ::testing::Values("22_expert_parallel"),
                         chapter_name);

TEST_P(BadExpertParallel, Degrees) {
  const std::string moe = "--model moe-nano ";
  expect_refused(
      {{moe + "--ep 0", "--ep 0: legal are 1, 2, 4, 8"},
       {moe + "--ep -2", "--ep -2: legal are 1, 2, 4, 8"},
       {moe + "--ep 3", "--ep 3: legal are 1, 2, 4, 8"},
       {moe + "--ep 16", "--ep 16: legal are 1, 2, 4, 8"},
       {"--model llama-nano --ep 2", "--model llama-nano has no experts; legal is --ep 1"},
       {moe + "--experts 6 --ep 4", "of 6 in all; legal are 1"},
       {moe + "--experts 12 --ep 4", "of 12 in all; legal are 1"},
       {moe + "--experts 4 --ep 8", "legal are 1, 2, 4"},
       {moe + "--ep 4 --ranks 2",
        "--ep 4 with 2 ranks; legal are multiples of 4 ranks, or --ep 1, 2"},
       {moe + "--ep 2 --ranks 4 --batch 6", "a batch of 6 does not suit 4 ranks"},
       {moe + "--ep 2 --optimizer adafactor", "2 ranks hold chunks of them"}});
}

}  // namespace
}  // namespace ladder::test
