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

TEST_P(BadExpertParallel, Placements) {
  const std::string moe = "--model moe-nano --ep 4 ";
  expect_refused(
      {{moe + "--redundant-experts 2", "with the 8 experts a multiple of 4 ranks, not 2"},
       {moe + "--redundant-experts -4", "from 0 to 24"},
       {moe + "--redundant-experts 28", "from 0 to 24, which is each expert on each rank"},
       {moe + "--redundant-experts 100000000", "from 0 to 24"},
       {moe + "--redundant-experts 9223372036854775804", "from 0 to 24"},
       {moe + "--expert-nodes 3", "--expert-nodes must divide 4 ranks, not 3"},
       {moe + "--expert-groups 0", "--expert-groups must divide 8 experts, not 0"},
       {moe + "--wire-time nan", "--wire-time must be from 0 to 1000000, not nan"},
       {moe + "--wire-time 1e300", "--wire-time must be from 0 to 1000000, not 1e+300"},
       {"--model llama-nano --redundant-experts 1", "the model has no experts; legal is 0"}});
}

}  // namespace
}  // namespace ladder::test
