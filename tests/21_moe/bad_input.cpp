// Models with experts in all other chapters. What 21_moe refuses: refused.txt.
#include "tests/common/refusal.h"

namespace ladder::test {
namespace {

class ModelWithExperts : public Refusals {};
INSTANTIATE_TEST_SUITE_P(Refuses, ModelWithExperts,
                         ::testing::Values("01_sgd", "06_checkpointing", "10_zero3",
                                           "13_3d_parallel", "16_fp8", "19_llama"),
                         chapter_name);
TEST_P(ModelWithExperts, BelongsToChapter21) {
  expect_refused(BadInput{"--model moe-nano",
                          "--model moe-nano has experts, which belong to 21_moe and "
                          "22_expert_parallel: run ch21_moe, or with more than one rank "
                          "ch22_expert_parallel"});
}

}  // namespace
}  // namespace ladder::test
